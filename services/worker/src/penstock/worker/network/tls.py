"""TLS between workers, by the settings of RPCs."""

from __future__ import annotations

import ssl

from penstock.common.errors import SettingsError
from penstock.common.rpc import RpcSettings


def server_context(settings: RpcSettings) -> ssl.SSLContext | None:
    """For whoever connects here, who needs a certificate where there is an authority; None without TLS."""
    if not settings.tls_cert and not settings.tls_key:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_pair(context, settings)
    if settings.tls_ca:
        _load_authority(context, settings)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(settings: RpcSettings) -> ssl.SSLContext | None:
    """For connections to others; None without TLS."""
    if not settings.tls_ca:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _load_authority(context, settings)
    if settings.tls_cert and settings.tls_key:
        _load_pair(context, settings)
    return context


def _load_pair(context: ssl.SSLContext, settings: RpcSettings) -> None:
    if not settings.tls_cert or not settings.tls_key:
        missing = "rpc.tls_key" if settings.tls_cert else "rpc.tls_cert"
        raise SettingsError(f"{missing} is missing", hint="TLS needs both rpc.tls_cert and rpc.tls_key")
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as error:
        raise SettingsError(f"cannot use rpc.tls_cert {settings.tls_cert} and its key: {error}") from error


def _load_authority(context: ssl.SSLContext, settings: RpcSettings) -> None:
    try:
        context.load_verify_locations(settings.tls_ca)
    except OSError as error:
        raise SettingsError(f"cannot use rpc.tls_ca {settings.tls_ca}: {error}") from error
