"""How a worker proves who it is to the brokers; one set of values for Faust, the admin client and the publisher.

The names are those of Kafka's own clients (`security.protocol`, `sasl.mechanism`, `ssl.ca.location`).
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...schemas.errors import ConfigError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """Protocol and credentials.

    Attributes:
        protocol: one of PROTOCOLS; PLAINTEXT is for a broker on the same machine.
        mechanism: SASL mechanism, one of MECHANISMS.
        username: SASL user.
        password: SASL password; never shown by repr.
        ca_location: file with the certificates to trust; the system's own when unset.
        certificate_location: client certificate (mutual TLS).
        key_location: key of the client certificate; unset when the certificate file holds it.
        allow_plaintext_sasl: permit a password over an unencrypted connection. Off: Faust falls back to that
            silently when it is given credentials without a TLS context.
    """

    protocol: str = "PLAINTEXT"
    mechanism: str = "SCRAM-SHA-512"
    username: str = ""
    password: str = field(default="", repr=False)
    ca_location: Path | None = None
    certificate_location: Path | None = None
    key_location: Path | None = None
    allow_plaintext_sasl: bool = False

    def __post_init__(self) -> None:
        """Refuse combinations that cannot work or would be unsafe.

        Raises:
            ConfigError: naming the setting to change.
        """
        if self.protocol not in PROTOCOLS:
            raise ConfigError(f"security protocol {self.protocol!r} is unknown; use one of {', '.join(PROTOCOLS)}")
        if self.uses_sasl:
            if self.mechanism not in MECHANISMS:
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
        for name in ("ca_location", "certificate_location", "key_location"):
            path: Path | None = getattr(self, name)
            if path is not None and not self.uses_tls:
                raise ConfigError(f"{name} is set but the protocol is {self.protocol}; use SSL or SASL_SSL")
            if path is not None and not path.is_file():
                raise ConfigError(f"{name} is {str(path)!r}, which is not a file")

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether a user and password are presented."""
        return self.protocol.startswith("SASL_")

    def tls_context(self) -> ssl.SSLContext | None:
        """Context that verifies the broker; None without TLS.

        Raises:
            ConfigError: a certificate or key file does not load.
        """
        if not self.uses_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_location)
            if self.certificate_location is not None:
                context.load_cert_chain(self.certificate_location, self.key_location)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"the TLS files do not load: {error}") from error
        return context

    def client_arguments(self) -> dict[str, Any]:
        """Keyword arguments of every aiokafka client."""
        arguments: dict[str, Any] = {"security_protocol": self.protocol, "ssl_context": self.tls_context()}
        if self.uses_sasl:
            arguments |= {
                "sasl_mechanism": self.mechanism,
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
                username=self.username, password=self.password, mechanism=self.mechanism, ssl_context=context
            )
        return faust.SSLCredentials(context) if context is not None else None
