"""What must not be shown: which names hold secrets, and how values and URLs look without them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

MASK = "***"

# Compared with the letters and digits of a name alone, so that `access_key`, `accessKey` and `access.key` are one.
_SECRET_WORDS = (
    "secret",
    "token",
    "password",
    "passphrase",
    "credential",
    "accesskey",
    "accountkey",
    "apikey",
    "privatekey",
    "saskey",
)
_USERINFO = re.compile(r"(?<=://)[^/?#\s]*@")
_QUERY = re.compile(r"(?<=[^\s?])\?[^\s\"'<>]+")


def looks_secret(name: str) -> bool:
    """Whether a value of this name is a secret."""
    letters = re.sub(r"[^a-z0-9]", "", name.lower())
    return any(word in letters for word in _SECRET_WORDS)


def redact(value: object) -> object:
    """A copy of a value with secrets masked, at any depth: by their name, or within a URL."""
    match value:
        case Mapping():
            return {key: MASK if looks_secret(str(key)) else redact(item) for key, item in value.items()}
        case list() | tuple():
            return [redact(item) for item in value]
        case str():
            # Most text holds no URL, and equal text is returned as the object that it was.
            return _USERINFO.sub(f"{MASK}@", value) if "://" in value else value
        case _:
            return value


def without_credentials(url: str) -> str:
    """A URL as it may be shown: neither user and password nor query string nor fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def redact_message(text: str) -> str:
    """Another library's error message without the credentials and query strings of the URLs in it."""
    return _QUERY.sub("", _USERINFO.sub("", text))
