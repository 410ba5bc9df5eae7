"""A Kafka broker with TLS, passwords and access control lists, and users who have the rights that trustfold prints."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from local_kafka import LocalKafka
from local_kafka_node import SHORT_LIVED
from local_kafka_probe import free_port

PATIENCE_S = 20
RESOURCES = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "cluster": ResourceType.BROKER}
OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Create": AclOperation.CREATE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
    "IdempotentWrite": AclOperation.IDEMPOTENT_WRITE,
}


def password_of(user: str) -> str:
    """The password that a user was made with."""
    return f"secret of {user}"


class Certificates(NamedTuple):
    """Files of a certification authority made for one test.

    Attributes:
        authority: its certificate.
        broker: certificate and key of 127.0.0.1, signed by it.
    """

    authority: Path
    broker: Path


def certify(folder: Path) -> Certificates:
    """Make an authority and a broker's certificate with openssl."""
    folder.mkdir()
    authority, key, broker = folder / "ca.pem", folder / "ca.key", folder / "broker.pem"
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    made = folder / "made.pem", folder / "made.key"
    own = ["-subj", "/CN=authority of a test", "-keyout", str(key), "-out", str(authority)]
    signed = [
        *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE"),
        *("-CA", str(authority), "-CAkey", str(key), "-keyout", str(made[1]), "-out", str(made[0])),
    ]
    for arguments in (own, signed):
        subprocess.run([*new, *arguments], check=True, capture_output=True)
    broker.write_text(made[1].read_text() + made[0].read_text())
    return Certificates(authority, broker)


class SecuredKafka:
    """A running broker that trusts nobody but the test, who is anonymous on a listener of its own.

    Attributes:
        bootstrap: where users connect, with TLS and a password.
        certificates: the authority to trust.
    """

    def __init__(self, kafka: LocalKafka, bootstrap: str, certificates: Certificates) -> None:
        self.bootstrap, self.certificates = bootstrap, certificates
        self._admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def environ(self, user: str, **more: str) -> dict[str, str]:
        """Settings with which a command connects as a user."""
        return {
            "TRUSTFOLD_BROKER": self.bootstrap,
            "TRUSTFOLD_SECURITY_PROTOCOL": "SASL_SSL",
            "TRUSTFOLD_SASL_USERNAME": user,
            "TRUSTFOLD_SASL_PASSWORD": password_of(user),
            "TRUSTFOLD_SSL_CA_LOCATION": str(self.certificates.authority),
            **more,
        }

    def add_user(self, user: str) -> None:
        """Make a user, or give it back its password."""
        made = UserScramCredentialUpsertion(
            user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), password_of(user).encode()
        )
        self._alter(user, made)

    def remove_user(self, user: str) -> None:
        """Take a user's password away; connections stay until they are renewed."""
        self._alter(user, UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_512))

    def grant(self, commands: Iterable[str]) -> None:
        """Do what commands of kafka-acls.sh say."""
        bindings = [binding for command in commands for binding in bindings_of(command)]
        for done in self._admin.create_acls(bindings).values():
            done.result(PATIENCE_S)

    def revoke(self, user: str, resource: str) -> None:
        """Take every right of a user on a kind of resource."""
        those = AclBindingFilter(
            RESOURCES[resource],
            None,
            ResourcePatternType.ANY,
            f"User:{user}",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for done in self._admin.delete_acls([those]).values():
            assert done.result(PATIENCE_S)

    def _alter(self, user: str, change: object) -> None:
        self._admin.alter_user_scram_credentials([change])[user].result(PATIENCE_S)


def bindings_of(command: str) -> Iterator[AclBinding]:
    """What a command of kafka-acls.sh would allow; fails for an option that it does not have."""
    program, *words = shlex.split(command)
    assert program == "kafka-acls.sh"
    told: dict[str, list[str]] = {}
    for at, word in enumerate(words):
        if word.startswith("--"):
            following = words[at + 1] if at + 1 < len(words) and not words[at + 1].startswith("--") else ""
            told.setdefault(word.removeprefix("--"), []).append(following)
    told.pop("bootstrap-server")
    assert told.pop("add") == [""]
    (principal,) = told.pop("allow-principal")
    pattern = {"": ResourcePatternType.LITERAL, "prefixed": ResourcePatternType.PREFIXED}[
        told.pop("resource-pattern-type", [""])[0]
    ]
    operations = told.pop("operation")
    ((kind, (name,)),) = told.items()
    for operation in operations:
        yield AclBinding(
            RESOURCES[kind],
            name or "kafka-cluster",
            pattern,
            principal,
            "*",
            OPERATIONS[operation],
            AclPermissionType.ALLOW,
        )


@contextmanager
def secured_kafka(folder: Path, **settings: str) -> Iterator[SecuredKafka]:
    """Start such a broker; `settings` are the broker's own, with `_` for each dot."""
    certificates = certify(folder / "certificates")
    port = free_port()
    secure: Mapping[str, str] = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # the test, the broker itself and its controller, over PLAINTEXT
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.broker),
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    with LocalKafka(java_options=SHORT_LIVED, settings=secure, listeners={"SASL_SSL": port}) as kafka:
        yield SecuredKafka(kafka, f"127.0.0.1:{port}", certificates)
