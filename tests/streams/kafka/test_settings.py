"""Settings and security: read once, refused with a word about what to change."""

import ssl
from pathlib import Path

import faust
import pytest
from trustfold.errors import ConfigError
from trustfold.schemas.topics import DEFAULT_PARTITIONS, DEFAULT_PREFIX
from trustfold.streams.kafka.kafka_settings import ENVIRONMENT, KafkaSettings
from trustfold.streams.kafka.security import BrokerSecurity


def test_defaults_are_those_of_the_catalogue() -> None:
    """Without any variable the worker uses the catalogue's prefix and partitions."""
    settings = KafkaSettings.from_env({})
    assert (settings.topic_prefix, settings.partitions) == (DEFAULT_PREFIX, DEFAULT_PARTITIONS)
    assert settings.topic("events") == "trustfold.events"
    assert settings.changelog("session") == "trustfold-session-changelog"


@pytest.mark.parametrize("address", ["a", "a:9092", "[::1]", "[::1]:9092", "fe80::1", "10.0.0.1:65535"])
def test_addresses_as_kafka_has_them(address: str) -> None:
    """With and without a port, by name or number."""
    assert KafkaSettings(bootstrap=address).servers == [address]


def test_environment_and_overrides() -> None:
    """Variables are parsed by kind; what a command passes wins, None leaves the variable alone."""
    environ = {
        "TRUSTFOLD_BROKER": "a:1, b:2",
        "TRUSTFOLD_PARTITIONS": "3",
        "TRUSTFOLD_CHECKPOINT_INTERVAL": "0.25",
        "TRUSTFOLD_STORE": "rocksdb",
        "TRUSTFOLD_DATA_DIR": "/var/lib/x",
        "TRUSTFOLD_WEB_PORT": "off",
        "TRUSTFOLD_LOG_LEVEL": "",
    }
    settings = KafkaSettings.from_env(environ, partitions=5, app_id=None)
    assert settings.servers == ["a:1", "b:2"]
    assert settings.partitions == 5
    assert settings.app_id == "trustfold"
    assert settings.checkpoint_interval == 0.25
    assert settings.data_dir == Path("/var/lib/x")
    assert settings.web_port is None
    assert settings.log_level == "INFO"


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"TRUSTFOLD_PARTITIONS": "many"}, "TRUSTFOLD_PARTITIONS is 'many'"),
        ({"TRUSTFOLD_PARTITIONS": "0"}, "partitions is 0"),
        ({"TRUSTFOLD_BROKER": " , "}, "no broker address"),
        ({"TRUSTFOLD_BROKER": "a:1,b:c"}, "broker address 'b:c': the port must be a number"),
        ({"TRUSTFOLD_BROKER": "a:"}, "broker address 'a:'"),
        ({"TRUSTFOLD_BROKER": "[::1]:70000"}, "the port must be a number from 1 to 65535"),
        ({"TRUSTFOLD_STORE": "redis"}, "store 'redis' is unknown"),
        ({"TRUSTFOLD_CHECKPOINT_INTERVAL": "nan"}, "checkpoint_interval is nan"),
        ({"TRUSTFOLD_REVOKE_TIMEOUT": "90"}, "must be below rebalance_timeout"),
        ({"TRUSTFOLD_APP_ID": " x"}, "app id ' x'"),
        ({"TRUSTFOLD_LOG_LEVEL": "loud"}, "log level 'loud' is unknown"),
        ({"TRUSTFOLD_REPLICATION": "-1"}, "replication is -1"),
        ({"TRUSTFOLD_SECURITY_PROTOCOL": "TLS"}, "security protocol 'TLS' is unknown"),
        ({"TRUSTFOLD_SECURITY_PROTOCOL": "SASL_SSL"}, "needs a user and a password"),
        ({"TRUSTFOLD_ALLOW_PLAINTEXT_SASL": "perhaps"}, "expected true or false"),
        ({"TRUSTFOLD_SSL_CA_LOCATION": "/x"}, "the protocol is PLAINTEXT"),
        ({"TRUSTFOLD_SSL_CA_LOCATION": "/x", "TRUSTFOLD_SECURITY_PROTOCOL": "SSL"}, "is not a file"),
    ],
)
def test_nonsense_is_refused_by_name(environ: dict[str, str], words: str) -> None:
    """A value that cannot work names its setting and what it should be."""
    with pytest.raises(ConfigError) as refused:
        KafkaSettings.from_env(environ)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("environ", "variable", "remedy"),
    [
        ({"SASL_PASSWORD": "hush"}, "SASL_PASSWORD", "SASL_SSL"),
        ({"SASL_USERNAME": "u", "SECURITY_PROTOCOL": "SSL"}, "SASL_USERNAME", "SASL_SSL"),
        ({"SASL_MECHANISM": "SCRAM-SHA-512"}, "SASL_MECHANISM", "SASL_SSL"),
        ({"SSL_CA_LOCATION": "/x"}, "SSL_CA_LOCATION", "SSL or SASL_SSL"),
        ({"SSL_CERTIFICATE_LOCATION": "/x"}, "SSL_CERTIFICATE_LOCATION", "SSL or SASL_SSL"),
        ({"SSL_KEY_LOCATION": "/x"}, "SSL_KEY_LOCATION", "SSL or SASL_SSL"),
        ({"SSL_KEY_LOCATION": "/x", "SECURITY_PROTOCOL": "SSL"}, "SSL_KEY_LOCATION", "SSL_CERTIFICATE_LOCATION"),
        ({"ALLOW_PLAINTEXT_SASL": "true", "SECURITY_PROTOCOL": "SSL"}, "ALLOW_PLAINTEXT_SASL", "SASL_PLAINTEXT"),
    ],
)
def test_what_has_no_effect_is_refused(environ: dict[str, str], variable: str, remedy: str) -> None:
    """Who sets a password or a certificate that nobody uses is told so, and both ways out; no password is shown."""
    with pytest.raises(ConfigError) as refused:
        KafkaSettings.from_env({f"TRUSTFOLD_{name}": value for name, value in environ.items()})
    said = str(refused.value)
    assert said.startswith(f"TRUSTFOLD_{variable} is set, but ")
    assert "it has no effect" in said
    assert remedy in said
    assert f"or unset TRUSTFOLD_{variable}" in said
    assert "hush" not in said


def test_every_security_variable_is_looked_at(tmp_path: Path) -> None:
    """None of them can be set in vain: alone, without a protocol that uses it, each is refused."""
    for name in ENVIRONMENT:
        if name.startswith(("TRUSTFOLD_SASL_", "TRUSTFOLD_SSL_", "TRUSTFOLD_ALLOW_")):
            with pytest.raises(ConfigError, match=f"{name} is set, but .* no effect"):
                KafkaSettings.from_env({name: "true" if "ALLOW" in name else str(tmp_path)})


SASL = {"TRUSTFOLD_SASL_USERNAME": "u", "TRUSTFOLD_SASL_PASSWORD": "hush"}


def test_a_password_is_not_sent_in_the_open_by_accident() -> None:
    """SASL without TLS needs a word from the operator; Faust would just do it."""
    with pytest.raises(ConfigError, match="unencrypted"):
        KafkaSettings.from_env(SASL | {"TRUSTFOLD_SECURITY_PROTOCOL": "SASL_PLAINTEXT"})
    allowed = SASL | {"TRUSTFOLD_SECURITY_PROTOCOL": "SASL_PLAINTEXT", "TRUSTFOLD_ALLOW_PLAINTEXT_SASL": "true"}
    assert KafkaSettings.from_env(allowed).client_arguments()["security_protocol"] == "SASL_PLAINTEXT"


def test_a_password_is_never_shown() -> None:
    """Neither repr nor an error about the variable gives it away."""
    settings = KafkaSettings.from_env(SASL | {"TRUSTFOLD_SECURITY_PROTOCOL": "SASL_SSL"})
    assert "hush" not in repr(settings)
    assert "TRUSTFOLD_SASL_PASSWORD" in ENVIRONMENT


def test_faust_and_aiokafka_get_the_same_credentials() -> None:
    """One set of values makes Faust's credentials and every other client's arguments."""
    security = KafkaSettings.from_env(SASL | {"TRUSTFOLD_SECURITY_PROTOCOL": "SASL_SSL"}).security
    credentials = security.faust_credentials()
    assert isinstance(credentials, faust.SASLCredentials)
    assert credentials.protocol.value == "SASL_SSL"
    arguments = security.client_arguments()
    assert arguments["sasl_mechanism"] == credentials.mechanism.value == "SCRAM-SHA-512"
    assert arguments["sasl_plain_password"] == credentials.password == "hush"
    assert isinstance(arguments["ssl_context"], ssl.SSLContext)
    assert arguments["ssl_context"].check_hostname


def test_tls_without_a_password() -> None:
    """SSL alone gives Faust a context that verifies the broker; PLAINTEXT gives nothing."""
    credentials = BrokerSecurity(protocol="SSL").faust_credentials()
    assert credentials.context.verify_mode is ssl.CERT_REQUIRED
    assert BrokerSecurity().faust_credentials() is None
    assert BrokerSecurity().tls_context() is None


def test_a_bad_certificate_file_is_named(tmp_path: Path) -> None:
    """A file that is no certificate is the operator's to correct."""
    path = tmp_path / "ca.pem"
    path.write_text("nothing")
    with pytest.raises(ConfigError, match="TLS files do not load"):
        BrokerSecurity(protocol="SSL", ca_location=path).tls_context()
