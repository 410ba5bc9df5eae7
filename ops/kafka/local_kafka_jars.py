"""Apache Kafka's published jars, in a folder of their own, got once by the ordinary Maven client.

The version and the coordinates stand in pom.xml. The jars go to `$TRUSTFOLD_KAFKA_HOME` where that is set,
else to `$XDG_CACHE_HOME/trustfold/kafka-VERSION` (`~/.cache/…`). A folder that holds an unpacked Kafka
distribution does as well: it has the same `libs/`.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

POM = Path(__file__).with_name("pom.xml")
HOME_VARIABLE = "TRUSTFOLD_KAFKA_HOME"
JAVA_NEEDED = 17  # Kafka 4's brokers are compiled for Java 17
KAFKA_NEEDED = 4  # the first without ZooKeeper, whose settings local_kafka_node.py writes
GOAL = "org.apache.maven.plugins:maven-dependency-plugin:copy-dependencies"  # in the version of pom.xml
MAVEN_PATIENCE = 900  # seconds for some 45 MB of jars and Maven's own plugins over a slow line

# What Maven prints, and what it means to the person in front of it. First match wins.
MAVEN_FAILURES = (
    (
        re.compile("[Cc]hecksum validation failed"),
        (
            "what arrived is not what was published (a broken proxy, an interrupted download): run it again,"
            " and if it stays so, ask whoever runs the proxy"
        ),
    ),
    (
        re.compile(
            "Could not transfer|Unknown host|Connection refused|timed out|Network is unreachable"
            "|No route to host|Cannot access .* in offline mode"
        ),
        (
            "the Maven repository cannot be reached from here (network, proxy, or offline mode): set a mirror"
            " or a proxy in ~/.m2/settings.xml, or copy a Kafka distribution to this machine and name its"
            f" folder in {HOME_VARIABLE}"
        ),
    ),
    (
        re.compile("Could not find artifact|was not found in"),
        (
            f"the repository has no such version: correct kafka.version in {POM}, or the mirror in"
            " ~/.m2/settings.xml lacks it"
        ),
    ),
)


class KafkaUnavailable(RuntimeError):
    """No broker can be run on this machine as it is; the message says what is missing and what to do."""


class KafkaInstallation(NamedTuple):
    """What it takes to start a broker."""

    java: str  # the program
    libs: Path  # the folder of jars
    version: str  # Kafka's, e.g. "4.3.1"


def pinned_version() -> str:
    """Give the Kafka version that pom.xml names."""
    found = re.search(r"<kafka\.version>\s*([^<\s]+)\s*<", POM.read_text(encoding="utf-8"))
    if found is None:
        raise KafkaUnavailable(f"{POM} has no kafka.version: restore the file from version control")
    return found[1]


def home() -> Path:
    """Give the folder the jars are kept in, whether it exists or not."""
    if named := os.environ.get(HOME_VARIABLE):
        return Path(named).expanduser().absolute()
    # An empty or relative XDG_CACHE_HOME counts as unset (XDG Base Directory Specification).
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    if not cache.is_absolute():
        cache = Path("~/.cache").expanduser()
    return cache / "trustfold" / f"kafka-{pinned_version()}"


def installed(folder: Path) -> str | None:
    """Give the version of Kafka in this folder, or None where it has none, or jars of another pom.xml.

    Raises KafkaUnavailable for a Kafka older than 4.
    """
    version = next(
        (jar.stem.partition("-")[2] for jar in sorted((folder / "libs").glob("kafka_2.1*.jar")) if "-" in jar.stem),
        None,
    )
    if version is None:
        return None
    major = re.match(r"\d+", version)
    if major is None or int(major[0]) < KAFKA_NEEDED:
        raise KafkaUnavailable(
            f"{folder} holds Kafka {version}, and this needs Kafka {KAFKA_NEEDED} or newer: point"
            f" {HOME_VARIABLE} at a newer one, or unset it"
        )
    stamp = folder / "ready"  # only in folders that prepare() filled
    if stamp.exists() and stamp.read_text(encoding="ascii").strip() != _stamp():
        return None
    return version


def find_java() -> str:
    """Give the Java program to use: JAVA_HOME's, else the one on the path.

    Raises KafkaUnavailable where there is none, or one older than 17.
    """
    install = "install one (Debian and Ubuntu: apt-get install openjdk-17-jre-headless)"
    java_home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(java_home, "bin"))) if java_home else shutil.which("java")
    if java is None:
        where = f"no Java in JAVA_HOME={java_home}: correct it, or" if java_home else "no `java` on the path:"
        raise KafkaUnavailable(f"{where} {install}")
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KafkaUnavailable(f"{java} does not run ({error}): repair that Java, or {install}") from error
    version = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    if version is None or told.returncode:
        said = (told.stderr + told.stdout).strip()[:200]
        raise KafkaUnavailable(
            f"`{java} -version` does not tell its version ({said!r}): repair that Java, or {install}"
        )
    if int(version[1]) < JAVA_NEEDED:
        raise KafkaUnavailable(
            f"{java} is Java {version[1]} and Kafka needs Java {JAVA_NEEDED} or newer: {install}"
            " and point JAVA_HOME at it"
        )
    return java


def prepare(say: Callable[[str], None] = lambda _: None) -> KafkaInstallation:
    """Make sure that Java and the jars are there, fetching the jars once; `say` hears what takes long.

    Safe when several processes call it at once: one fetches, the others wait for it. Raises KafkaUnavailable.
    """
    java = find_java()
    folder = home()
    if (version := installed(folder)) is not None:
        return KafkaInstallation(java, folder / "libs", version)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with Path(f"{folder}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (version := installed(folder)) is None:  # unless another process did it meanwhile
                _fill(folder, say)
                version = installed(folder)
    except OSError as error:
        raise KafkaUnavailable(
            f"cannot write Kafka's jars to {folder} ({error}): make room or give the right to write there, or"
            f" name another folder in {HOME_VARIABLE}"
        ) from error
    if version is None:
        raise KafkaUnavailable(f"Maven reported success, but {folder} has no Kafka: look at {POM}")
    return KafkaInstallation(java, folder / "libs", version)


def _fill(folder: Path, say: Callable[[str], None]) -> None:
    """Fetch the jars beside the folder, then put them in its place in one step."""
    if folder.exists() and any(folder.iterdir()) and not (folder / "ready").exists():
        raise KafkaUnavailable(
            f"{folder} holds something, but no Kafka (no libs/kafka_2.13-*.jar): point {HOME_VARIABLE} at an"
            " empty or a new folder, or at an unpacked Kafka"
        )
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailable(
            "no `mvn` on the path, which fetches Kafka's jars: install it (Debian and Ubuntu: apt-get install"
            f" maven), or name the folder of an unpacked Kafka in {HOME_VARIABLE}"
        )
    say(f"fetching Apache Kafka {pinned_version()} into {folder} (once, some 45 MB)")
    scratch = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        _copy_dependencies(maven, scratch / "libs")
        (scratch / "ready").write_text(_stamp() + "\n", encoding="ascii")
        scratch.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _copy_dependencies(maven: str, libs: Path) -> None:
    """Have Maven resolve pom.xml and copy the jars; raises KafkaUnavailable, in plain words."""
    command = [
        maven,
        "--batch-mode",
        "--quiet",
        "--strict-checksums",
        "--update-snapshots",  # try again what could not be found yesterday
        f"--file={POM}",
        GOAL,
        f"-DoutputDirectory={libs}",
    ]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=MAVEN_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise KafkaUnavailable(
            f"Maven did not fetch Kafka within {MAVEN_PATIENCE} s: the line or the mirror in"
            " ~/.m2/settings.xml is slow; run it again, what has arrived is kept"
        ) from error
    if done.returncode == 0:
        return
    printed = done.stdout + done.stderr
    lines = [line for line in printed.splitlines() if "ERROR" in line] or printed.splitlines()
    first = re.sub(r"\x1b\[[0-9;]*m", "", lines[0]).strip() if lines else f"exit code {done.returncode}"
    meaning = next(
        (text for pattern, text in MAVEN_FAILURES if pattern.search(printed)),
        f"run it by hand and read its messages: mvn --file={POM} {GOAL}",
    )
    raise KafkaUnavailable(f"Maven could not fetch Kafka: {meaning}. Maven said: {first}")


def _stamp() -> str:
    """Give what tells one pom.xml from another."""
    return hashlib.sha256(POM.read_bytes()).hexdigest()
