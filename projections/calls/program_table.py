"""Table of programs behind a shell: which exit codes are answers, and how programs say that a service is away or refuses.

Data alone; `programs.py` reads it. The facts are those of the programs' own documentation, named in `source` where it
is not their manual page. A row holds for several programs only if all of them document the same. Checks that find
faults (tests, linters, type checkers, formatters) are no answers: their failure is what the caller has to mend.
"""

from __future__ import annotations

from typing import NamedTuple


class AnsweringPrograms(NamedTuple):
    """Exit codes by which programs answer, in the words of a grep: nothing found, not equal, not yet."""

    programs: tuple[str, ...]  # names of the programs
    codes: tuple[int, ...]  # exit codes that are answers
    means: str  # what the codes mean, for a reader
    subcommands: tuple[str, ...] = ()  # it holds for one of these subcommands (`pr checks`); empty: for every call
    options: tuple[str, ...] = ()  # it holds if one of these options is given; empty: with any
    says: tuple[str, ...] = ()  # it holds if the message has one of these texts, in lower case; empty: with any message
    source: str = ""  # documentation, where it is not the manual page


def _answer(
    programs: str, codes: tuple[int, ...], means: str, source: str = "", *, sub: str = "", opt: str = "", says: str = ""
) -> AnsweringPrograms:
    alternatives = tuple(sub.split("|")) if sub else ()
    return AnsweringPrograms(
        tuple(programs.split()),
        codes,
        means,
        alternatives,
        tuple(opt.split()),
        tuple(says.split("|")) if says else (),
        source,
    )


ANSWERS: tuple[AnsweringPrograms, ...] = (
    # Searches
    _answer("grep egrep fgrep zgrep bzgrep xzgrep zstdgrep pcregrep pcre2grep ugrep", (1,), "no line selected"),
    _answer("rg ag ack pt", (1,), "no match"),
    _answer("git", (1,), "no match", "git-grep", sub="grep"),
    _answer("hg", (1,), "nothing found", "hg help grep, incoming, outgoing", sub="grep|incoming|outgoing"),
    _answer("findstr", (1,), "no match", "Windows commands: findstr"),
    _answer("find", (1,), "a part of the tree may not be read", says="permission denied"),
    _answer("fd fdfind", (1,), "nothing found", opt="-q --quiet"),
    _answer("locate mlocate plocate", (1,), "nothing found"),
    _answer("look", (1,), "nothing found"),
    _answer("fzf", (1,), "no match", opt="-f --filter"),
    _answer("apropos whatis man", (16,), "nothing appropriate"),
    _answer("jq", (1, 4), "the last output is false or null; there is none", opt="-e --exit-status -er -re -ce -ec"),
    _answer("yq", (1,), "the last output is false or null", "yq: exit status flag", opt="-e --exit-status"),
    _answer("xmllint", (11,), "the XPath expression finds nothing", opt="--xpath"),
    # Comparisons
    _answer("diff cmp diff3 sdiff zdiff zcmp colordiff", (1,), "not equal"),
    _answer("git", (1,), "there are changes", "git-diff", sub="diff|diff-index|diff-files|diff-tree",
            opt="--exit-code --quiet --no-index -q"),
    _answer("git", (2,), "white space errors in the changes", "git-diff", sub="diff", opt="--check"),
    _answer("md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum shasum cksum", (1,),
            "a checksum does not match", opt="-c --check"),
    _answer("kubectl oc", (1,), "there are differences", "kubectl diff: exit status", sub="diff"),
    _answer("terraform tofu", (2,), "the plan has changes", "terraform plan: -detailed-exitcode", sub="plan",
            opt="-detailed-exitcode --detailed-exitcode"),
    _answer("helm", (2,), "there are changes", "helm-diff: --detailed-exitcode", sub="diff", opt="--detailed-exitcode"),
    _answer("argocd", (1,), "there are differences", "argocd app diff", sub="app diff"),
    # Conditions
    _answer("test [ [[", (1,), "not true"),
    _answer("expr let", (1,), "the value is zero or empty"),
    _answer("mountpoint", (1, 32), "no mount point"),
    _answer("git", (1,), "no ancestor; none in common", "git-merge-base", sub="merge-base"),
    _answer("git", (1,), "nothing is ignored", "git-check-ignore", sub="check-ignore"),
    _answer("git", (1,), "no such reference", "git-show-ref, git-rev-parse, git-symbolic-ref",
            sub="show-ref|rev-parse|symbolic-ref", opt="-q --quiet --verify --exists --tags --heads --branches"),
    _answer("git", (1,), "the file is not tracked", "git-ls-files", sub="ls-files", opt="--error-unmatch"),
    _answer("git", (2,), "no matching reference", "git-ls-remote", sub="ls-remote", opt="--exit-code"),
    _answer("git", (1,), "the key is not set", "git-config", sub="config"),
    _answer("git", (1,), "no such object", "git-cat-file", sub="cat-file", opt="-e"),
    _answer("git", (1,), "nothing to commit", "git-commit: --dry-run", sub="commit",
            says="nothing to commit|nothing added to commit|no changes added to commit"),
    _answer("make gmake", (1,), "not up to date", opt="-q --question"),
    _answer("kill", (1,), "no such process", opt="-0"),
    _answer("flock", (1,), "somebody else holds the lock", opt="-n --nb --nonblock -w --wait --timeout"),
    _answer("tmux", (1,), "no such session", sub="has-session|has"),
    _answer("kubectl oc", (1,), "not allowed", "kubectl auth can-i", sub="auth can-i"),
    # What is installed, running or known
    _answer("which type hash where where.exe", (1,), "not found"),
    _answer("command", (1, 127), "not found", "POSIX: command -v", opt="-v -V"),
    _answer("pgrep pkill pidof killall fuser lsof", (1,), "no such process or file in use"),
    _answer("id", (1,), "no such user", says="no such user"),
    _answer("getent", (2,), "no such entry"),
    _answer("crontab", (1,), "no crontab", opt="-l", says="no crontab for"),
    _answer("systemctl", (1, 3, 4), "not active, not enabled, not failed; no such unit", "systemctl: exit status (LSB)",
            sub="is-active|is-enabled|is-failed|status"),
    _answer("service", (3, 4), "not running; no such service", "LSB: init script actions", sub="*"),
    _answer("pg_isready", (1, 2), "the server is starting; it does not respond"),
    _answer("ping ping6", (1,), "no reply"),
    _answer("nc ncat netcat", (1,), "nobody listens", opt="-z -zv -vz -vzw -zvw"),
    _answer("host nslookup", (1,), "no such name", says="nxdomain|not found|no answer"),
    _answer("dpkg dpkg-query", (1,), "not installed", opt="-s --status -l --list -L --listfiles -S --search -W --show"),
    _answer("rpm", (1,), "not installed", opt="-q --query -qa -qi -ql -qf"),
    _answer("pacman", (1,), "not installed; nothing to upgrade", opt="-Q -Qi -Qs -Qu -Qq -Ss -Qo"),
    _answer("apk", (1,), "not installed", "apk-info", sub="info", opt="-e --installed"),
    _answer("brew", (1,), "not installed; outdated", "brew list, brew outdated", sub="list|ls|outdated"),
    _answer("dnf yum", (100,), "there are updates", "dnf check-update", sub="check-update|check-upgrade"),
    _answer("pip pip3", (1,), "not installed; requirements that do not fit", "pip show, pip check",
            sub="show|check", says="not found|requires|requirement"),
    _answer("uv", (1,), "not installed; requirements that do not fit", "uv pip show, uv pip check",
            sub="pip show|pip check"),
    _answer("npm", (1,), "there are newer versions; the tree has problems; not installed; vulnerabilities",
            "npm outdated, npm ls, npm audit", sub="outdated|ls|list|ll|la|audit|explain"),
    _answer("npm pnpm", (1,), "no such package or version", "npm view", sub="view|info|show|v", says="e404|404 not found"),
    _answer("pnpm", (1,), "there are newer versions; vulnerabilities", "pnpm outdated, pnpm audit", sub="outdated|audit"),
    _answer("yarn", tuple(range(1, 32)), "there are newer versions; vulnerabilities, by severity",
            "yarn outdated, yarn audit", sub="outdated|audit|npm audit"),
    _answer("bundle", (1,), "there are newer versions; gems that do not fit", "bundle outdated, bundle check",
            sub="outdated|check"),
    _answer("gem", (1,), "not installed", "gem list --installed", sub="list", opt="-i --installed"),
    _answer("composer", (1,), "there are newer versions", "composer outdated --strict", sub="outdated",
            opt="-s --strict"),
    _answer("cargo", (101,), "no such package in the tree", "cargo tree", sub="tree",
            says="did not match any packages|nothing to print"),
    _answer("codesign spctl", (1, 3), "not signed; not accepted", opt="-v --verify --assess"),
    # Services that answer
    _answer("gh", (1, 8), "checks have failed; checks are pending", "gh pr checks", sub="pr checks"),
    _answer("gh", (1,), "the run has failed", "gh run view, gh run watch", sub="run view|run watch",
            opt="--exit-status"),
    _answer("gh", (1,), "nothing found", "gh pr view, gh release view", sub="pr view|release view|issue view|repo view|api",
            says="no pull requests found|release not found|could not resolve to a|http 404"),
    _answer("glab", (1,), "nothing found", "glab mr view", sub="mr view|issue view|release view|api",
            says="404 not found|no open merge request"),
    _answer("kubectl oc", (1,), "no such resource", "kubectl get", sub="get|describe|logs|rollout status",
            says="(notfound)|notfound"),
    _answer("kubectl oc", (1,), "not yet", "kubectl wait", sub="wait|rollout status",
            says="timed out waiting for the condition|no matching resources found"),
    _answer("helm", (1,), "no such release", "helm status", sub="status|get|history", says="not found"),
    _answer("docker podman nerdctl", (1,), "no such object", "docker inspect",
            sub="inspect|image inspect|container inspect|volume inspect|network inspect|logs|port",
            says="no such"),
    _answer("podman", (1,), "no such object", "podman image exists",
            sub="image exists|container exists|volume exists|network exists|pod exists"),
    _answer("aws", (254, 255), "no such object", "AWS CLI return codes",
            sub="s3api head-object|s3api head-bucket|sts decode-authorization-message",
            says="(404)|nosuchbucket|nosuchkey"),
    _answer("az", (3,), "no such resource", "Azure CLI: exit codes", sub="*"),
)  # fmt: skip


class ServiceSigns(NamedTuple):
    """Signs by which programs say that the service behind them is away or refuses."""

    programs: tuple[str, ...]  # names of the programs
    default: str = ""  # the service where neither the line nor the message names one; empty: then there is none
    away: tuple[int, ...] = ()  # exit codes that alone say that the service cannot be reached
    refused: tuple[int, ...] = ()  # exit codes that alone say that it refuses the caller
    # the program's own words for it, in lower case, beside those that all programs share
    says_away: tuple[str, ...] = ()
    says_refused: tuple[str, ...] = ()  # the same for a refusal
    # words by which the service itself answers: neither exit code nor shared words count then
    says_up: tuple[str, ...] = ()
    login: bool = False  # it keeps a login of its own: a refusal is named `program@service`
    statuses: bool = False  # an HTTP status in its message counts: 401, 403 and 407 refuse, 5xx and 429 are away
    host_options: tuple[str, ...] = ()  # options that name the host
    port_options: tuple[str, ...] = ()  # options that name the port
    # its first operand names the host: `user@host:path`; `url`: every operand may be a URL without a scheme
    operand: str = ""
    valued: frozenset[str] = frozenset()  # its options that take a value which is no operand
    subcommands: tuple[str, ...] = ()  # only these talk to the service; empty: every call does
    # subcommands by which another program speaks: of its words only the row's own count; `*`: by any
    runs: tuple[str, ...] = ()
    source: str = ""  # documentation, where it is not the manual page


def _service(
    programs: str,
    default: str = "",
    *,
    away: tuple[int, ...] = (),
    refused: tuple[int, ...] = (),
    says_away: str = "",
    says_refused: str = "",
    says_up: str = "",
    login: bool = False,
    statuses: bool = False,
    host: str = "",
    port: str = "",
    operand: str = "",
    valued: str = "",
    sub: str = "",
    runs: str = "",
    source: str = "",
) -> ServiceSigns:
    return ServiceSigns(
        tuple(programs.split()),
        default,
        away,
        refused,
        tuple(says_away.split("|")) if says_away else (),
        tuple(says_refused.split("|")) if says_refused else (),
        tuple(says_up.split("|")) if says_up else (),
        login,
        statuses,
        tuple(host.split()),
        tuple(port.split()),
        operand,
        frozenset(valued.split()),
        tuple(sub.split("|")) if sub else (),
        tuple(runs.split("|")) if runs else (),
        source,
    )


_SCRIPTS = "run|run-script|test|t|start|exec|x|dev|build|watch|serve|lint|tsc"
_CONTAINERS = "run|exec|build|buildx|logs|attach|compose|up|start|wait|container|image"
_NPM = "code e401|enotauth|eneedauth|need auth|unable to authenticate"
_SOCKET = (
    "cannot connect to the docker daemon|is the docker daemon running|error during connect|cannot connect to podman"
)

SERVICES: tuple[ServiceSigns, ...] = (
    # HTTP and files
    _service("curl", away=(5, 6, 7, 28, 35, 52, 56), refused=(67,), statuses=True, operand="url",
             valued="""-o --output -H --header -X --request -d --data --data-raw --data-binary --data-urlencode --json -u --user
             -A --user-agent -e --referer -b --cookie -c --cookie-jar -F --form -T --upload-file -w --write-out -m --max-time
             --connect-timeout --retry --retry-delay -K --config -E --cert --key --cacert -x --proxy -r --range -D --dump-header""",
             source="curl: exit codes"),
    _service("wget", away=(4,), refused=(6,), statuses=True, operand="url",
             valued="""-O --output-document -P --directory-prefix -o --output-file -a -t --tries -T --timeout -U --user-agent
             --header --post-data --post-file --user --password -e --execute -w --wait -i --input-file""",
             source="wget: exit status"),
    _service("http https xh xhs", away=(2, 5), statuses=True, operand="url", valued="-a --auth -o --output -s --style -p --print",
             says_away="connectionerror|connection refused", source="HTTPie: exit status"),
    _service("aria2c", away=(2, 6, 19), refused=(24,), operand="url", valued="-o --out -d --dir -x -s -i", source="aria2c: exit status"),
    _service("grpcurl", says_away="failed to dial target host|code: unavailable", says_refused="code: unauthenticated", operand="url",
             valued="-H -d -import-path -proto -cert -key -cacert"),
    _service("websocat wscat", operand="url", says_away="websocketerror", valued="-H --header -c --connect"),
    _service("ftp lftp", operand="target", says_refused="login incorrect|login failed", says_away="max-retries exceeded"),
    _service("smbclient", operand="unc", says_away="nt_status_connection_refused|nt_status_host_unreachable|nt_status_io_timeout",
             says_refused="nt_status_logon_failure|nt_status_access_denied"),
    # Remote shells
    _service("ssh", away=(255,), operand="target", port="-p", login=True, runs="*",
             says_away="ssh: connect to host|ssh: could not resolve hostname|kex_exchange_identification",
             valued="-b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w",
             says_refused="permission denied (|host key verification failed|too many authentication failures"),
    _service("scp sftp", away=(255,), operand="path", port="-P", login=True, valued="-c -D -F -i -J -l -o -P -S -X",
             says_refused="permission denied (|host key verification failed", says_away="lost connection|connection closed"),
    _service("rsync", away=(10, 30, 35, 255), operand="path", login=True,
             valued="-e --rsh --exclude --include --files-from --port --password-file -f --filter --bwlimit --timeout",
             says_refused="permission denied (|host key verification failed|@error: auth failed", source="rsync: exit values"),
    _service("ssh-copy-id", operand="target", port="-p", valued="-i -p -o -F", login=True, says_refused="permission denied ("),
    _service("ssh-keyscan", operand="target", port="-p", valued="-p -t -T -f -O"),
    _service("mosh", operand="target", valued="--ssh -p --port", says_refused="permission denied (", login=True),
    _service("ansible ansible-playbook", away=(4,), runs="*", says_away="unreachable!", says_refused="permission denied (publickey",
             valued="-i --inventory -m -a -e", source="ansible: return codes"),
    # Databases and brokers
    _service("psql", "localhost:5432", away=(2,), host="-h --host", port="-p --port", says_refused="password authentication failed|no password supplied|fe_sendauth",
             says_away="the database system is starting up|too many clients|remaining connection slots|server closed the connection unexpectedly", says_up="fatal:", source="psql: exit status"),
    _service("pg_dump pg_dumpall pg_restore createdb dropdb vacuumdb pgbench", "localhost:5432", host="-h --host", port="-p --port",
             says_away="the database system is starting up|too many clients|remaining connection slots|server closed the connection unexpectedly", says_up="fatal:", says_refused="password authentication failed|no password supplied"),
    _service("mysql mariadb mysqldump mysqladmin mysqlimport mysqlcheck mariadb-dump", "localhost:3306", host="-h --host", port="-P --port",
             says_away="error 2002|error 2003|error 2005|error 2006|error 2013|can't connect to",
             says_refused="error 1045|error 1044|access denied for user", source="MySQL: client error messages"),
    _service("redis-cli valkey-cli", "localhost:6379", host="-h", port="-p", says_away="could not connect to redis|could not connect to valkey",
             says_refused="noauth|wrongpass|noperm"),
    _service("mongosh mongo mongodump mongorestore mongoexport mongoimport", "localhost:27017", host="--host", port="--port",
             says_away="mongonetworkerror|mongoserverselectionerror|server selection error", says_refused="authentication failed|requires authentication"),
    _service("sqlcmd", "localhost:1433", host="-S", says_away="could not open a connection|login timeout expired|server is not found", says_refused="login failed for user"),
    _service("cqlsh", "localhost:9042", operand="target", says_away="unable to connect to any servers", says_refused="bad credentials|authenticationfailed"),
    _service("clickhouse-client", "localhost:9000", away=(210,), host="-h --host", port="--port", says_away="network_error", says_refused="authentication_failed|code: 516"),
    _service("influx", "localhost:8086", host="--host", statuses=True, says_refused="unauthorized access"),
    _service("etcdctl", "localhost:2379", host="--endpoints", says_away="context deadline exceeded", says_refused="authentication failed"),
    _service("kcat kafkacat", host="-b", says_away="brokers are down|connect to ipv4|broker transport failure", says_refused="sasl authentication"),
    _service("kafka-topics kafka-topics.sh kafka-console-consumer kafka-console-consumer.sh kafka-console-producer.sh kafka-consumer-groups.sh",
             host="--bootstrap-server --broker-list", says_away="could not be established|timed out waiting for a node assignment|bootstrap broker"),
    _service("rabbitmqctl rabbitmq-diagnostics", "localhost", away=(69,), says_away="unable to perform an operation on node|nodedown", source="rabbitmqctl: exit codes"),
    _service("nats", "localhost:4222", host="-s --server", says_away="no servers available", says_refused="authorization violation"),
    _service("mosquitto_pub mosquitto_sub", "localhost:1883", host="-h --host", port="-p --port", says_refused="not authorised|bad user name or password"),
    _service("ldapsearch ldapadd ldapmodify ldapwhoami", "localhost:389", refused=(49,), host="-H -h", says_away="can't contact ldap server", says_refused="invalid credentials"),
    _service("vault", "localhost:8200", host="-address --address", login=True, statuses=True, says_refused="permission denied|missing client token"),
    _service("consul nomad", "localhost:8500", statuses=True, says_refused="acl not found|permission denied"),
    _service("ollama", "localhost:11434", says_away="could not connect to ollama|ollama server not responding"),
    # Containers and clusters
    _service("kubectl oc k9s kustomize kubectx", "kubernetes", login=True, host="-s --server", runs="exec|logs|run|attach|debug|port-forward|cp|diff", source="kubectl",
             says_away="was refused - did you specify the right host or port|unable to connect to the server|couldn't get current server api group list|the server is currently unable to handle the request",
             says_refused="you must be logged in to the server|unauthorized|must be logged in"),
    _service("helm", "kubernetes", login=True, says_away="kubernetes cluster unreachable", says_refused="unauthorized|you must be logged in to the server"),
    _service("minikube kind k3d", "docker daemon", says_away=_SOCKET + "|host is not running"),
    _service("docker docker-compose nerdctl", "docker daemon", host="-H --host", login=True, runs=_CONTAINERS, says_away=_SOCKET,
             says_refused="unauthorized: |denied: requested access|no basic auth credentials|permission denied while trying to connect", source="docker"),
    _service("podman podman-compose buildah skopeo", "podman socket", login=True, runs=_CONTAINERS, says_away=_SOCKET + "|unable to connect to podman socket",
             says_refused="unauthorized: |authentication required|access to the resource is denied"),
    _service("crictl ctr", "containerd socket", says_away="validate service connection|connect: no such file or directory"),
    _service("systemctl loginctl hostnamectl timedatectl busctl", "systemd", says_away="failed to connect to bus|has not been booted with systemd"),
    _service("adb", "adb", runs="shell|logcat", says_away="no devices/emulators found|cannot connect to daemon|device offline", says_refused="device unauthorized"),
    # Forges and clouds
    _service("gh hub", "github.com", refused=(4,), login=True, statuses=True, says_away="error connecting to",
             says_refused="gh auth login|bad credentials|requires authentication|gh_token", source="gh help exit-codes"),
    _service("glab", "gitlab.com", login=True, statuses=True, says_refused="glab auth login|401 {message"),
    _service("aws sam cdk", "aws", refused=(253,), login=True, says_away="could not connect to the endpoint url|endpointconnectionerror|connect timeout on endpoint",
             says_refused="unable to locate credentials|expiredtoken|invalidclienttokenid|unrecognizedclient|authfailure|signaturedoesnotmatch|accessdenied|the sso session associated with this profile has expired|token has expired and refresh failed|partial credentials|the config profile",
             source="AWS CLI return codes"),
    _service("gcloud gsutil bq", "googleapis.com", login=True, statuses=True,
             says_refused="gcloud auth login|reauthentication|does not have any valid credentials|could not automatically determine credentials|invalid_grant|your default credentials were not found|do not currently have an active account"),
    _service("az azd func", "azure", login=True, says_refused="az login|aadsts|authorizationfailed|interaction_required"),
    _service("doctl", "digitalocean.com", login=True, statuses=True, says_refused="unable to authenticate you|access token is required"),
    _service("heroku", "heroku.com", login=True, statuses=True, runs="run|logs|local", says_refused="heroku login|invalid credentials provided|not logged in"),
    _service("fly flyctl", "fly.io", login=True, statuses=True, runs="ssh|logs|console", says_refused="no access token available|fly auth login|flyctl auth login"),
    _service("vercel now", "vercel.com", login=True, statuses=True, runs="dev|build|logs", says_refused="vercel login|the specified token is not valid|no existing credentials found"),
    _service("netlify ntl", "netlify.com", login=True, statuses=True, runs="dev|build", says_refused="not authorized|netlify login|not logged in"),
    _service("wrangler", "cloudflare.com", login=True, statuses=True, runs="dev|tail", says_refused="authentication error|wrangler login|not authenticated|cloudflare_api_token"),
    _service("firebase", "firebase.google.com", login=True, statuses=True, runs="serve|emulators", says_refused="firebase login|failed to authenticate|authentication error"),
    _service("supabase", "supabase.com", login=True, statuses=True, says_refused="supabase login|access token not provided"),
    _service("stripe", "stripe.com", login=True, statuses=True, says_refused="stripe login|invalid api key|you have not configured api keys"),
    _service("sentry-cli", "sentry.io", login=True, statuses=True, says_refused="auth token is required|invalid token"),
    _service("huggingface-cli hf", "huggingface.co", login=True, statuses=True, says_refused="not logged in|invalid user token|gated repo|invalid username or password"),
    _service("terraform tofu", "registry.terraform.io", login=True, statuses=True, says_away="failed to query available provider packages|could not connect to",
             says_refused="no valid credential sources|terraform login|expiredtoken|invalidclienttokenid"),
    _service("pulumi", "pulumi.com", login=True, statuses=True, says_refused="pulumi login|pulumi_access_token|invalid access token"),
    # Sources and packages
    _service("git git-lfs", login=True, statuses=True, source="git",
             sub="clone|fetch|pull|push|ls-remote|submodule|remote|lfs|archive|fetch-pack|subtree",
             says_away="the remote end hung up unexpectedly|early eof",
             says_refused="authentication failed for|could not read username|could not read password|permission denied (publickey|support for password authentication was removed|host key verification failed|terminal prompts disabled|repository access blocked|invalid username or password|invalid username or token"),
    _service("svn", login=True, operand="url", valued="-r -m", says_away="e170013|e000111", says_refused="e170001|e215004|authentication failed|authorization failed"),
    _service("hg", login=True, operand="url", says_refused="authorization failed|http authorization required"),
    _service("npm", "registry.npmjs.org", login=True, statuses=True, host="--registry", runs=_SCRIPTS, says_away="npm error network|npm err! network", says_refused=_NPM,
             source="npm: common errors"),
    _service("npx pnpx bunx", "registry.npmjs.org", login=True, runs="*", says_away="npm error network|npm err! network|err_pnpm_meta_fetch_fail", says_refused=_NPM),
    _service("pnpm", "registry.npmjs.org", login=True, statuses=True, host="--registry", runs=_SCRIPTS, says_away="err_pnpm_meta_fetch_fail", says_refused=_NPM + "|err_pnpm_fetch_401"),
    _service("yarn", "registry.yarnpkg.com", login=True, statuses=True, host="--registry", runs="*", says_away="there appears to be trouble with your network connection|requesterror", says_refused="yn0033|yn0041|invalid authentication|couldn't publish"),
    _service("bun", "registry.npmjs.org", login=True, statuses=True, sub="install|i|add|update|remove|publish|create|pm|outdated", says_away="connectionrefused|failedtoopensocket"),
    _service("pip pip3 pipx twine", "pypi.org", login=True, statuses=True, host="-i --index-url --repository-url",
             says_away="failed to establish a new connection|max retries exceeded|connection broken by|read timed out", says_refused="invalid or non-existent authentication information"),
    _service("uv uvx poetry pipenv pdm", "pypi.org", login=True, statuses=True, sub="add|sync|lock|install|update|publish|remove|pip|tool|search|source|self|python", host="--index-url --index --default-index",
             says_away="error sending request|dns error|all attempts to connect|max retries exceeded", says_refused="invalid or non-existent authentication information|missing credentials"),
    _service("conda mamba micromamba", "repo.anaconda.com", statuses=True, says_away="condahttperror|connection failed|could not resolve host"),
    _service("gem bundle", "rubygems.org", login=True, statuses=True, runs="exec|e", says_away="could not reach host|could not fetch specs|unable to download data|network is unreachable|failed to open tcp connection",
             says_refused="bad username or password|authentication is required|access denied"),
    _service("composer", "packagist.org", login=True, statuses=True, says_away="curl error", says_refused="invalid credentials|authentication required"),
    _service("cargo", "crates.io", login=True, runs="*", says_away="spurious network error|failed to download from|failed to query replaced source registry", says_refused="no token found|authentication failed"),
    _service("go", "proxy.golang.org", sub="get|mod|install|list|download|work", says_away="dial tcp|tls handshake timeout", says_refused="could not read username|terminal prompts disabled"),
    _service("mvn mvnw gradle gradlew sbt", "repo.maven.apache.org", runs="*", says_away="could not transfer artifact|could not get resource", says_refused="status code: 401|received status code 401"),
    _service("dotnet nuget", "api.nuget.org", runs="*", says_away="nu1301|unable to load the service index", says_refused="success: 401 (unauthorized)"),
    _service("apt apt-get", "package mirror", says_away="temporary failure resolving|could not connect to|cannot initiate the connection"),
    _service("apk", "package mirror", says_away="temporary error|network error|dns lookup error|could not connect"),
    _service("yum dnf zypper pacman", "package mirror", says_away="cannot download repomd|could not resolve host|failed to download metadata|cannot prepare internal mirrorlist|failed retrieving file|failed to synchronize"),
    _service("brew", "ghcr.io", says_away="failed to connect to|could not resolve host"),
    _service("snap flatpak", "snapcraft.io", says_away="unable to contact snap store|cannot communicate with server|could not connect"),
)  # fmt: skip

# Words by which any program of the table says that its service cannot be reached
SHARED_AWAY = (
    "connection refused",
    "econnrefused",
    "could not resolve host",
    "couldn't resolve host",
    "could not resolve hostname",
    "could not resolve proxy",
    "name or service not known",
    "nodename nor servname",
    "temporary failure in name resolution",
    "no such host",
    "getaddrinfo",
    "network is unreachable",
    "no route to host",
    "connection timed out",
    "connection reset by peer",
    "i/o timeout",
    "failed to connect to",
    "couldn't connect to server",
    "503 service unavailable",
    "502 bad gateway",
    "504 gateway time",
    "rate limit exceeded",
    "429 too many requests",
)

# Words by which any program with a login of its own says that its service refuses it
SHARED_REFUSED = (
    "401 unauthorized",
    "bad credentials",
    "token has expired",
    "token is expired",
    "token expired",
    "expired token",
    "token has been revoked",
    "token was revoked",
    "invalid api key",
    "authentication failed",
    "authentication required",
    "unauthenticated",
    "not logged in",
    "403 forbidden",
)

# Programs at the end of a pipe that only pass on what they were given: the program before them is judged
FILTERS = frozenset(
    """head tail wc sort uniq cut tr cat tac tee column nl fold rev less more sed awk gawk jq echo printf true
    xargs""".split()
)

# Programs before `&&` that name themselves in a message where they fail (`cd: no such directory`)
QUIET = FILTERS | frozenset(
    """cd pushd popd export set shopt source . umask ulimit sleep trap unset local declare readonly ls pwd date tree du
    df stat file mkdir cp mv rm touch chmod ln basename dirname realpath readlink mktemp""".split()
)
