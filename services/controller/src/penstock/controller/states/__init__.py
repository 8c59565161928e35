"""The states of a job, one module each, and the machine that moves a job between them."""
