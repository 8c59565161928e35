"""The resources of the api, one a module."""
