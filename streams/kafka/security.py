"""Authentication and encryption for brokers; shared by Faust, the admin client and the publisher.

The names are those of Kafka's own clients (`security.protocol`, `sasl.mechanism`, `ssl.ca.location`).
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import ConfigError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
DEFAULT_MECHANISM = "SCRAM-SHA-512"

_SASL = "SASL_SSL"
_TLS = "SSL or SASL_SSL"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSecurity:
    """Protocol and credentials."""

    protocol: str = "PLAINTEXT"  # one of PROTOCOLS; PLAINTEXT is for a broker on the same machine
    mechanism: str = ""  # SASL mechanism, one of MECHANISMS; DEFAULT_MECHANISM if it is empty and SASL is used
    username: str = ""  # SASL user
    password: str = field(default="", repr=False)  # SASL password; never shown by repr
    ca_location: Path | None = None  # file with trusted certificates; the system's own if unset
    certificate_location: Path | None = None  # client certificate (mutual TLS)
    key_location: Path | None = None  # key of the client certificate; unset if the certificate file holds it
    # permit a password over an unencrypted connection. Off by default: Faust silently uses one if it has credentials
    # without a TLS context.
    allow_plaintext_sasl: bool = False

    def __post_init__(self) -> None:
        """Validate the combination of settings."""
        if self.protocol not in PROTOCOLS:
            raise ConfigError(f"security protocol {self.protocol!r} is unknown; use one of {', '.join(PROTOCOLS)}")
        if self.uses_sasl:
            if self.mechanism_used not in MECHANISMS:
                raise ConfigError(f"SASL mechanism {self.mechanism!r} is unknown; use one of {', '.join(MECHANISMS)}")
            if not self.username or not self.password:
                raise ConfigError(
                    f"{self.protocol} needs a user and a password; "
                    "set TRUSTFOLD_SASL_USERNAME and TRUSTFOLD_SASL_PASSWORD"
                )
            if self.protocol == "SASL_PLAINTEXT" and not self.allow_plaintext_sasl:
                raise ConfigError(
                    "SASL_PLAINTEXT sends the password unencrypted; use SASL_SSL, "
                    "or set TRUSTFOLD_ALLOW_PLAINTEXT_SASL=true if the network is yours"
                )
        self._reject_settings_without_effect()
        for name in ("ca_location", "certificate_location", "key_location"):
            path: Path | None = getattr(self, name)
            if path is not None and not path.is_file():
                raise ConfigError(f"{name} is {str(path)!r}, which is not a file")

    def _reject_settings_without_effect(self) -> None:
        """Reject settings without effect: their author would believe that connections are safer than they are."""
        given = {
            "TRUSTFOLD_SASL_MECHANISM": (bool(self.mechanism), self.uses_sasl, _SASL),
            "TRUSTFOLD_SASL_USERNAME": (bool(self.username), self.uses_sasl, _SASL),
            "TRUSTFOLD_SASL_PASSWORD": (bool(self.password), self.uses_sasl, _SASL),
            "TRUSTFOLD_SSL_CA_LOCATION": (self.ca_location is not None, self.uses_tls, _TLS),
            "TRUSTFOLD_SSL_CERTIFICATE_LOCATION": (self.certificate_location is not None, self.uses_tls, _TLS),
            "TRUSTFOLD_SSL_KEY_LOCATION": (self.key_location is not None, self.uses_tls, _TLS),
            "TRUSTFOLD_ALLOW_PLAINTEXT_SASL": (
                self.allow_plaintext_sasl, self.protocol == "SASL_PLAINTEXT", "SASL_PLAINTEXT"
            ),
        }  # fmt: skip
        for variable, (is_set, counts, protocol) in given.items():
            if is_set and not counts:
                raise ConfigError(
                    f"{variable} is set, but the protocol is {self.protocol}: it has no effect; "
                    f"set TRUSTFOLD_SECURITY_PROTOCOL to {protocol}, or unset {variable}"
                )
        if self.key_location is not None and self.certificate_location is None:
            raise ConfigError(
                "TRUSTFOLD_SSL_KEY_LOCATION is set, but no certificate: it has no effect; "
                "set TRUSTFOLD_SSL_CERTIFICATE_LOCATION too, or unset TRUSTFOLD_SSL_KEY_LOCATION"
            )

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether a user and password are presented."""
        return self.protocol.startswith("SASL_")

    def tls_context(self) -> ssl.SSLContext | None:
        """Context that verifies the broker; None without TLS."""
        if not self.uses_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_location)
            if self.certificate_location is not None:
                context.load_cert_chain(self.certificate_location, self.key_location)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"the TLS files do not load: {error}") from error
        return context

    @property
    def mechanism_used(self) -> str:
        """The SASL mechanism, if SASL is used."""
        return self.mechanism or DEFAULT_MECHANISM

    def client_arguments(self) -> dict[str, Any]:
        """Keyword arguments of every aiokafka client."""
        arguments: dict[str, Any] = {"security_protocol": self.protocol, "ssl_context": self.tls_context()}
        if self.uses_sasl:
            arguments |= {
                "sasl_mechanism": self.mechanism_used,
                "sasl_plain_username": self.username,
                "sasl_plain_password": self.password,
            }
        return arguments

    def faust_credentials(self) -> Any:
        """Faust's `broker_credentials`; None for PLAINTEXT."""
        import faust  # noqa: PLC0415 - settings are read by commands that never start Faust

        context = self.tls_context()
        if self.uses_sasl:
            return faust.SASLCredentials(
                username=self.username, password=self.password, mechanism=self.mechanism_used, ssl_context=context
            )
        return faust.SSLCredentials(context) if context is not None else None
