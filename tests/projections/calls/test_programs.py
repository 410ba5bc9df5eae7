"""Programs behind a shell: a case each way for every row of the table, and what a whole line makes of them."""

from __future__ import annotations

import pytest
from trustfold.projections.calls.program_table import ANSWERS, SERVICES
from trustfold.projections.calls.programs import FailureReading, read_failure
from trustfold.projections.calls.shell import simple_commands

Case = tuple[str, int, str]
"""Command line, exit code, message."""

ANSWERS_EACH_WAY: tuple[tuple[Case, Case], ...] = (
    # An answer, and a failure of the same program; in the order of the table.
    (("grep -rn foo src", 1, ""), ("grep foo missing", 2, "grep: missing: No such file or directory")),
    (("rg -n foo", 1, ""), ("rg '('", 2, "regex parse error")),
    (("git grep foo", 1, ""), ("git log nowhere", 128, "fatal: ambiguous argument")),
    (("hg incoming", 1, "no changes found"), ("hg update", 1, "abort: uncommitted changes")),
    (("findstr foo x.txt", 1, ""), ("findstr /q", 2, "FINDSTR: Bad command line")),
    (("find / -name x", 1, "find: '/root': Permission denied"), ("find nowhere", 1, "find: 'nowhere': No such file")),
    (("fd --quiet foo", 1, ""), ("fd foo nowhere", 1, "Search path 'nowhere' is not a directory")),
    (("locate foo", 1, ""), ("locate --what", 2, "unrecognized option")),
    (("look foo", 1, ""), ("look", 2, "usage: look")),
    (("ls | fzf --filter zzz", 1, ""), ("fzf --what", 2, "unknown option: --what")),
    (("apropos zzz", 16, "zzz: nothing appropriate."), ("apropos '('", 3, "apropos: fatal")),
    (("jq -e .missing x.json", 1, "null"), ("jq .a x.json", 1, "")),
    (("yq -e .missing x.yml", 1, "Error: no matches found"), ("yq .a x.yml", 1, "Error: bad file 'x.yml'")),
    (("xmllint --xpath //a x.xml", 11, "XPath set is empty"), ("xmllint x.xml", 1, "x.xml:1: parser error")),
    (("diff a b", 1, "1c1"), ("diff a b", 2, "diff: b: No such file or directory")),
    (("git diff --exit-code", 1, "diff --git a/x b/x"), ("git diff", 1, "error: could not open")),
    (("git diff --check", 2, "x:1: trailing whitespace."), ("git diff nowhere", 2, "")),
    (("sha256sum -c SUMS", 1, "x: FAILED"), ("sha256sum nowhere", 1, "sha256sum: nowhere: No such file")),
    (("kubectl diff -f x.yml", 1, "diff -u -N"), ("kubectl apply -f x.yml", 1, "error: no objects passed to apply")),
    (("terraform plan -detailed-exitcode", 2, "Plan: 1 to add"), ("terraform apply -auto-approve", 2, "Error: x")),
    (("helm diff upgrade a b --detailed-exitcode", 2, "has changed"), ("helm diff upgrade a b", 2, "Error: x")),
    (("argocd app diff web", 1, "===== apps/Deployment"), ("argocd app sync web", 1, "rpc error")),
    (("test -f x", 1, ""), ("test 1 -eq x", 2, "integer expression expected")),
    (("expr 0", 1, "0"), ("expr 1 +", 2, "expr: syntax error")),
    (("mountpoint -q /etc", 32, ""), ("mountpoint", 2, "bad usage")),
    (("git merge-base --is-ancestor a b", 1, ""), ("git merge-base a nowhere", 128, "fatal: Not a valid object name")),
    (("git check-ignore x", 1, ""), ("git check-ignore", 128, "fatal: no path specified")),
    (("git rev-parse --verify -q nowhere", 1, ""), ("git rev-parse nowhere", 1, "")),
    (("git ls-files --error-unmatch x", 1, "error: pathspec 'x' did not match"), ("git ls-files x", 1, "")),
    (("git ls-remote --exit-code origin nowhere", 2, ""), ("git ls-remote origin", 2, "")),
    (("git config --get a.b", 1, ""), ("git config --get a", 2, "error: key does not contain a section: a")),
    (("git cat-file -e abc", 1, ""), ("git cat-file -p abc", 128, "fatal: Not a valid object name abc")),
    (("git commit -m x", 1, "nothing to commit, working tree clean"), ("git commit -m x", 1, "husky - pre-commit")),
    (("make -q all", 1, ""), ("make all", 1, "make: *** [all] Error 1")),
    (("kill -0 42", 1, "kill: (42) - No such process"), ("kill 42", 1, "kill: (42) - No such process")),
    (("flock -n /tmp/lock true", 1, ""), ("flock /tmp/lock false", 1, "")),
    (("tmux has-session -t x", 1, "can't find session: x"), ("tmux kill-server", 1, "no server running")),
    (("kubectl auth can-i get pods", 1, "no"), ("kubectl auth whoami", 1, "error: x")),
    (("which psql", 1, ""), ("which -z", 2, "Illegal option -z")),
    (("command -v psql", 127, ""), ("command frobnicate", 127, "frobnicate: not found")),
    (("pgrep -f server", 1, ""), ("pgrep", 2, "pgrep: no matching criteria specified")),
    (("id deploy", 1, "id: 'deploy': no such user"), ("id --what", 1, "id: unrecognized option")),
    (("getent passwd deploy", 2, ""), ("getent what", 1, "Unknown database: what")),
    (("crontab -l", 1, "no crontab for root"), ("crontab x", 1, "crontab: error in x")),
    (("systemctl is-active nginx", 3, "inactive"), ("systemctl start nginx", 1, "Job for nginx.service failed")),
    (("service nginx status", 3, "nginx is not running"), ("service nginx start", 1, "nginx: unrecognized service")),
    (("pg_isready -h db", 2, "db:5432 - no response"), ("pg_isready -z", 3, "invalid option")),
    (("ping -c1 db", 1, "100% packet loss"), ("ping -c1 db", 2, "ping: db: Name or service not known")),
    (("nc -z db 5432", 1, ""), ("nc db 5432", 1, "")),
    (("host nowhere.example", 1, "Host nowhere.example not found: 3(NXDOMAIN)"), ("host x", 1, "no servers")),
    (("dpkg -s foo", 1, "package 'foo' is not installed"), ("dpkg -i foo.deb", 1, "error processing package")),
    (("rpm -q foo", 1, "package foo is not installed"), ("rpm -i foo.rpm", 1, "error: Failed dependencies")),
    (("pacman -Q foo", 1, "error: package 'foo' was not found"), ("pacman -S foo", 1, "error: target not found: foo")),
    (("apk info -e foo", 1, ""), ("apk add foo", 1, "ERROR: unable to select packages")),
    (("brew list foo", 1, "Error: No such keg"), ("brew install foo", 1, "Error: foo: no bottle available!")),
    (("dnf check-update", 100, "kernel 6.1"), ("dnf install foo", 1, "No match for argument: foo")),
    (("pip show foo", 1, "WARNING: Package(s) not found: foo"), ("pip install ./x", 1, "error: subprocess-exited")),
    (("uv pip show foo", 1, "warning: Package(s) not found for: foo"), ("uv pip install ./x", 1, "x: not found")),
    (("npm outdated", 1, "Package Current Wanted"), ("npm run build", 1, "Build failed")),
    (("npm view nowhere-at-all", 1, "npm error code E404"), ("npm view a", 1, "npm error code EINVAL")),
    (("pnpm outdated", 1, "Package Current Latest"), ("pnpm build", 1, "ELIFECYCLE Command failed")),
    (("yarn audit", 12, "3 vulnerabilities found"), ("yarn build", 12, "error Command failed")),
    (("bundle check", 1, "The following gems are missing"), ("bundle install", 1, "Gem::Ext::BuildError")),
    (("gem list -i foo", 1, "false"), ("gem list --what", 1, "ERROR:  invalid option")),
    (("composer outdated --strict", 1, "a/b 1.0 1.1"), ("composer dump-autoload", 1, "could not scan for classes")),
    (
        ("cargo tree -i foo", 101, "package ID specification `foo` did not match any packages"),
        ("cargo build", 101, "x"),
    ),
    (("codesign -v app", 1, "app: code object is not signed at all"), ("codesign -s id app", 1, "no identity found")),
    (("gh pr checks 3", 8, "build pending"), ("gh pr merge 3", 1, "Pull request is not mergeable")),
    (("gh run watch 1 --exit-status", 1, "X main CI"), ("gh run watch 1", 1, "run 1 has already completed")),
    (("gh pr view", 1, 'no pull requests found for branch "x"'), ("gh pr view --json x", 1, "Unknown JSON field")),
    (("glab mr view 3", 1, "404 Not Found"), ("glab mr merge 3", 1, "405 Method Not Allowed")),
    (("kubectl get pod x", 1, 'Error from server (NotFound): pods "x" not found'), ("kubectl get x", 1, "error: x")),
    (
        ("kubectl wait --for=condition=ready pod/x", 1, "error: timed out waiting for the condition on pods/x"),
        ("kubectl wait pod/x", 1, "error: must specify --for"),
    ),
    (("helm status web", 1, "Error: release: not found"), ("helm install web x", 1, "Error: chart not found")),
    (("docker inspect web", 1, "Error: No such object: web"), ("docker rm web", 1, "Error: No such container: web")),
    (("podman image exists web", 1, ""), ("podman rmi web", 1, "Error: web: image not known")),
    (
        ("aws s3api head-object --bucket b --key k", 254, "An error occurred (404) when calling HeadObject: Not Found"),
        ("aws s3api put-object --bucket b --key k", 254, "An error occurred (404)"),
    ),
    (("az vm show -n x", 3, "(ResourceNotFound)"), ("az vm create", 2, "the following arguments are required")),
)

SERVICES_EACH_WAY: tuple[tuple[Case, str, Case], ...] = (
    # A service that is away or refuses, how it is read, and a failure of the program that says neither.
    (("curl -s http://localhost:8080/health", 7, ""), "away localhost:8080", ("curl -q", 2, "curl: try 'curl --help'")),
    (
        ("wget https://x.example/a", 8, "ERROR 503: Service Unavailable."),
        "away x.example",
        ("wget https://x.example/a", 8, "ERROR 404: Not Found."),
    ),
    (("http GET x.example/a", 2, "Request timed out"), "away x.example", ("http GET x.example/a", 4, "")),
    (("aria2c https://x.example/a", 6, ""), "away x.example", ("aria2c https://x.example/a", 3, "Resource not found")),
    (
        ("grpcurl localhost:50051 list", 1, 'Failed to dial target host "localhost:50051"'),
        "away localhost:50051",
        ("grpcurl localhost:50051 list a", 1, "Symbol not found: a"),
    ),
    (
        ("websocat ws://localhost:9/x", 1, "WebSocketError: I/O failure"),
        "away localhost:9",
        ("websocat --what", 1, "Unknown option"),
    ),
    (("lftp ftp.example", 1, "Login failed: 530"), "refused ftp.example", ("lftp ftp.example", 1, "No such file")),
    (
        ("smbclient //nas/share", 1, "NT_STATUS_LOGON_FAILURE"),
        "refused nas",
        ("smbclient //nas/share", 1, "NT_STATUS_OBJECT_NAME_NOT_FOUND"),
    ),
    (("ssh -p 2222 me@box ls", 255, ""), "away box:2222", ("ssh box 'curl db'", 7, "curl: (7) Connection refused")),
    (("scp a me@box:/tmp", 1, "Permission denied (publickey)."), "refused scp@box", ("scp a me@box:/x", 1, "scp: /x: No such file")),
    (("rsync -a x box:/y", 255, ""), "away box", ("rsync -a x box:/y", 23, "some files were not transferred")),
    (("ssh-copy-id me@box", 1, "Permission denied (publickey)."), "refused ssh-copy-id@box", ("ssh-copy-id me@box", 1, "no identities found")),
    (("ssh-keyscan box", 1, "getaddrinfo box: Name or service not known"), "away box", ("ssh-keyscan", 1, "usage: ssh-keyscan")),
    (("mosh box", 10, "ssh: connect to host box port 22: Connection refused"), "away box", ("mosh box", 5, "mosh did not make a successful connection: no mosh-server")),
    (("ansible-playbook x.yml", 4, "fatal: [web1]: UNREACHABLE! => ssh: connect to host web1 port 22: Connection refused"), "away web1:22", ("ansible-playbook x.yml", 2, "fatal: [web1]: FAILED!")),
    (("psql -h db -c x", 2, ""), "away db:5432", ("psql -h db x", 2, 'FATAL:  database "x" does not exist')),
    (("pg_dump -h db x", 1, 'password authentication failed for user "me"'), "refused db:5432", ("pg_dump x", 1, "pg_dump: error: no matching tables were found")),
    (("mysql -hdb x", 1, "ERROR 2003 (HY000): Can't connect to MySQL server on 'db:3306' (111)"), "away db:3306", ("mysql -hdb x", 1, "ERROR 1049 (42000): Unknown database 'x'")),
    (("redis-cli ping", 1, "Could not connect to Redis at 127.0.0.1:6379: Connection refused"), "away localhost:6379", ("redis-cli foo", 1, "ERR unknown command 'foo'")),
    (("mongosh --host db", 1, "MongoNetworkError: connect ECONNREFUSED 10.0.0.1:27017"), "away db:27017", ("mongosh --host db x.js", 1, "SyntaxError: x")),
    (("sqlcmd -S db -Q x", 1, "Login failed for user 'sa'."), "refused db:1433", ("sqlcmd -S db -Q x", 1, "Incorrect syntax near x")),
    (("cqlsh db", 1, "Connection error: ('Unable to connect to any servers', {})"), "away db", ("cqlsh db -e x", 2, "SyntaxException")),
    (("clickhouse-client --host db -q x", 210, ""), "away db:9000", ("clickhouse-client -q x", 62, "Syntax error")),
    (("influx query x", 1, "Error: failed to execute query: 401 Unauthorized: unauthorized access"), "refused localhost:8086", ("influx query x", 1, "Error: compilation failed")),
    (("etcdctl get a", 1, '{"level":"warn","error":"context deadline exceeded"}'), "away localhost:2379", ("etcdctl get", 128, "range command needs arguments")),
    (("kcat -b kafka:9092 -L", 1, "% ERROR: 1/1 brokers are down"), "away kafka:9092", ("kcat -b kafka:9092 -X", 1, "unknown option")),
    (("kafka-topics.sh --bootstrap-server kafka:9092 --list", 1, "Connection to node -1 could not be established"), "away kafka:9092", ("kafka-topics.sh --bootstrap-server kafka:9092 --delete", 1, "Topic 'x' does not exist")),
    (("rabbitmqctl status", 69, ""), "away localhost", ("rabbitmqctl what", 64, "Command 'what' not found.")),
    (("nats pub a b", 1, "nats: error: no servers available for connection"), "away localhost:4222", ("nats stream info x", 1, "stream not found")),
    (("mosquitto_pub -h mq -t a -m b", 1, "Connection error: Connection Refused: not authorised."), "refused mq:1883", ("mosquitto_pub -h mq", 1, "Error: Both topic and message must be supplied.")),
    (("ldapsearch -H ldap://dir -x", 49, ""), "refused dir:389", ("ldapsearch -H ldap://dir -x", 32, "No such object")),
    (("vault read a/b", 2, "Code: 403. Errors:\n* permission denied"), "refused vault@localhost:8200", ("vault read a/b", 2, "No value found at a/b")),
    (("consul members", 1, "dial tcp 127.0.0.1:8500: connect: connection refused"), "away localhost:8500", ("consul kv get a", 1, "Error! No key exists at: a")),
    (("ollama list", 1, "Error: could not connect to ollama app, is it running?"), "away localhost:11434", ("ollama run x", 1, "Error: pull model manifest: file does not exist")),
    (("kubectl get pods", 1, "The connection to the server 10.1.2.3:6443 was refused - did you specify the right host or port?"), "away 10.1.2.3:6443", ("kubectl exec x -- curl db", 7, "curl: (7) Failed to connect to db port 80: Connection refused")),
    (("helm list", 1, 'Error: Kubernetes cluster unreachable: Get "https://k8s.example:6443/version": dial tcp 10.0.0.1:6443: i/o timeout'), "away k8s.example:6443", ("helm upgrade a b", 1, "Error: UPGRADE FAILED")),
    (("kind create cluster", 1, "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"), "away docker daemon", ("kind create cluster", 1, "node(s) already exist")),
    (("docker compose up -d", 1, "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"), "away docker daemon", ("docker run x pytest", 1, "ConnectionError: connection refused")),
    (("podman pull reg.example/a", 125, "Error: initializing source: unauthorized: authentication required"), "refused podman@podman socket", ("podman run x", 125, "Error: x: image not known")),
    (("crictl ps", 1, "validate service connection: CRI v1 runtime API is not implemented"), "away containerd socket", ("crictl what", 1, "No help topic for 'what'")),
    (("systemctl start x", 1, "System has not been booted with systemd as init system"), "away systemd", ("systemctl start x", 5, "Unit x.service not found.")),
    (("adb devices", 1, "error: cannot connect to daemon"), "away adb", ("adb shell ls /x", 1, "ls: /x: No such file or directory")),
    (("gh pr list", 1, "HTTP 401: Bad credentials (https://api.github.com/graphql)"), "refused gh@github.com", ("gh pr create", 1, "a pull request already exists")),
    (("glab mr list", 1, "GET https://gitlab.com/api/v4: 401 {message: 401 Unauthorized}"), "refused glab@gitlab.com", ("glab mr create", 1, "must be on a branch")),
    (("aws s3 ls", 255, "An error occurred (ExpiredToken) when calling the ListBuckets operation"), "refused aws@aws", ("aws s3 cp a b", 252, "Error: Invalid argument type")),
    (("gcloud run list", 1, "ERROR: (gcloud.run.list) There was a problem refreshing your current auth tokens: Reauthentication failed"), "refused gcloud@googleapis.com", ("gcloud run x", 2, "Invalid choice: 'x'")),
    (("az vm list", 1, "Please run 'az login' to setup account."), "refused az@azure", ("az vm start", 2, "arguments are required")),
    (("doctl apps list", 1, "Error: Unable to authenticate you"), "refused doctl@digitalocean.com", ("doctl apps what", 1, "unknown command")),
    (("heroku ps", 100, "Error: not logged in"), "refused heroku@heroku.com", ("heroku run rake", 1, "PG::ConnectionBad: connection refused")),
    (("fly deploy", 1, "Error: no access token available. Please login with 'flyctl auth login'"), "refused fly@fly.io", ("fly deploy", 1, "Error: failed to build")),
    (("vercel deploy", 1, "Error: The specified token is not valid."), "refused vercel@vercel.com", ("vercel build", 1, "Error: connect ECONNREFUSED 127.0.0.1:5432")),
    (("netlify deploy", 1, "Error: Not logged in. Please log in to continue."), "refused netlify@netlify.com", ("netlify deploy", 1, "Error: No such directory dist")),
    (("wrangler deploy", 1, "Authentication error [code: 10000]"), "refused wrangler@cloudflare.com", ("wrangler deploy", 1, "Missing entry-point")),
    (("firebase deploy", 1, "Error: Failed to authenticate, have you run firebase login?"), "refused firebase@firebase.google.com", ("firebase deploy", 1, "Error: Not in a Firebase app directory")),
    (("supabase db push", 1, "Access token not provided. Supply an access token by running supabase login"), "refused supabase@supabase.com", ("supabase db push", 1, "cannot find project ref")),
    (("stripe listen", 1, "you have not configured API keys yet"), "refused stripe@stripe.com", ("stripe trigger x", 1, "The event `x` is not supported")),
    (("sentry-cli releases list", 1, "error: Auth token is required for this request."), "refused sentry-cli@sentry.io", ("sentry-cli releases x", 1, "error: unexpected argument")),
    (("hf download x/y", 1, "401 Client Error. Invalid username or password."), "refused hf@huggingface.co", ("hf download x/y z", 1, "File z not found")),
    (("terraform init", 1, "Error: Failed to query available provider packages"), "away registry.terraform.io", ("terraform validate", 1, "Error: Unsupported argument")),
    (("pulumi up", 255, "error: PULUMI_ACCESS_TOKEN must be set for login"), "refused pulumi@pulumi.com", ("pulumi up", 255, "error: no Pulumi.yaml project file found")),
    (("git push", 128, "fatal: unable to access 'https://git.example/x/': Could not resolve host: git.example"), "away git.example", ("git push", 1, " ! [rejected] main -> main (non-fast-forward)")),
    (("svn update https://svn.example/x", 1, "svn: E170013: Unable to connect to a repository"), "away svn.example", ("svn update", 1, "svn: E155007: not a working copy")),
    (("hg pull https://hg.example/x", 255, "abort: authorization failed"), "refused hg@hg.example", ("hg pull", 255, "abort: repository default not found")),
    (("npm ci", 1, "npm error code ENOTFOUND\nnpm error network request to https://registry.npmjs.org/a failed"), "away registry.npmjs.org", ("npm test", 1, "Error: connect ECONNREFUSED 127.0.0.1:5432")),
    (("npx cowsay", 1, "npm error code E401"), "refused npx@registry.npmjs.org", ("npx vitest", 1, "Error: connect ECONNREFUSED 127.0.0.1:5432")),
    (("pnpm install", 1, "ERR_PNPM_META_FETCH_FAIL  GET https://registry.npmjs.org/a"), "away registry.npmjs.org", ("pnpm test", 1, "connection refused")),
    (("yarn install", 1, "There appears to be trouble with your network connection. Retrying..."), "away registry.yarnpkg.com", ("yarn vitest", 1, "connection refused")),
    (("bun install", 1, "error: ConnectionRefused downloading package manifest a"), "away registry.npmjs.org", ("bun test", 1, "ConnectionRefused")),
    (("pip install a", 1, "Failed to establish a new connection: [Errno -3] Temporary failure in name resolution"), "away pypi.org", ("pip install a", 1, "ERROR: No matching distribution found for a")),
    (("uv sync", 2, "error sending request for url (https://pypi.org/simple/a/)"), "away pypi.org", ("uv run pytest", 1, "connection refused")),
    (("conda install a", 1, "CondaHTTPError: HTTP 000 CONNECTION FAILED for url <https://repo.anaconda.com/x>"), "away repo.anaconda.com", ("conda install a", 1, "PackagesNotFoundError")),
    (("gem install a", 2, "ERROR:  Could not find a valid gem 'a': Unable to download data from https://rubygems.org/"), "away rubygems.org", ("bundle exec rspec", 1, "connection refused")),
    (("composer install", 100, "curl error 6 while downloading https://repo.packagist.org/packages.json"), "away packagist.org", ("composer install", 2, "Your requirements could not be resolved")),
    (("cargo build", 101, "warning: spurious network error (3 tries remaining): Could not resolve host: index.crates.io"), "away crates.io", ("cargo test", 101, "connection refused")),
    (("go mod download", 1, 'Get "https://proxy.golang.org/a": dial tcp: lookup proxy.golang.org: no such host'), "away proxy.golang.org", ("go test ./...", 1, "dial tcp 127.0.0.1:5432: connect: connection refused")),
    (("mvn package", 1, "Could not transfer artifact a:b:pom:1 from central (https://repo.maven.apache.org/maven2)"), "away repo.maven.apache.org", ("mvn verify", 1, "Connection refused")),
    (("dotnet restore", 1, "error NU1301: Unable to load the service index for source https://api.nuget.org/v3/index.json."), "away api.nuget.org", ("dotnet test", 1, "Connection refused")),
    (("apt-get update", 100, "Temporary failure resolving 'deb.debian.org'"), "away deb.debian.org", ("apt-get install a", 100, "E: Unable to locate package a")),
    (("apk add a", 1, "WARNING: fetching https://dl-cdn.alpinelinux.org/x: temporary error (try again later)"), "away dl-cdn.alpinelinux.org", ("apk add a", 1, "ERROR: unable to select packages")),
    (("dnf install a", 1, "Cannot download repomd.xml: Cannot download repodata/repomd.xml"), "away package mirror", ("dnf install a", 1, "No match for argument: a")),
    (("brew install a", 1, "curl: (6) Could not resolve host: ghcr.io"), "away ghcr.io", ("brew install a", 1, "No available formula")),
    (("snap install a", 1, "error: unable to contact snap store"), "away snapcraft.io", ("snap install a", 64, 'error: snap "a" not found')),
)  # fmt: skip


def read(case: Case) -> FailureReading:
    """What a case's line and failure say."""
    line, code, message = case
    return read_failure(simple_commands(line), code, message)


def test_each_row_of_answers_answers_and_fails():
    """An exit code that a row names is an answer; another failure of its programs is none."""
    for row, (answer, failure) in zip(ANSWERS, ANSWERS_EACH_WAY, strict=True):
        assert read(answer).answer, answer
        assert not read(failure).answer, failure
        assert simple_commands(answer[0])[-1].name in row.programs


def test_each_row_of_services_is_away_or_refuses_and_is_fine():
    """A service that is away or refuses is found and named; another failure says nothing about it."""
    for row, (gone, expected, fine) in zip(SERVICES, SERVICES_EACH_WAY, strict=True):
        found = read(gone)
        assert f"{found.kind} {found.service}" == expected, gone
        assert not read(fine).kind, fine
        assert simple_commands(gone[0])[-1].name in row.programs
        assert simple_commands(fine[0])[-1].name in row.programs


def test_the_table_knows_more_than_sixty_programs():
    """The table is broad enough for the lines that agents write."""
    assert len({program for row in (*ANSWERS, *SERVICES) for program in row.programs}) >= 60


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("cat log | grep ERROR | head -5", 1, ""),
        ("cd src && grep -rn foo .", 1, ""),
        ("FOO=1 timeout 5 grep foo x", 1, ""),
        ("sudo /usr/bin/grep foo /etc/x", 1, ""),
        ("test -f a && grep foo a", 1, ""),
        ("make; grep foo build.log", 1, ""),
        ("make || grep foo build.log", 1, ""),
        ("bash -c 'cd x && git diff --quiet'", 1, ""),
        ("git -C ../other --no-pager diff --exit-code", 1, ""),
        ("kubectl get pods | grep web", 1, ""),
        ("[ -f x ] && [ -d y ]", 1, ""),
        ("if grep -q a b; then :; fi; diff a b", 1, ""),
    ],
)
def test_the_exit_code_of_a_line_is_an_answer_of_its_last_program(line, code, message):
    """Filters, wrappers, `cd` and what an earlier command did do not hide an answer."""
    assert read((line, code, message)).answer


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("pytest -q && git diff --exit-code", 1, "1 failed"),  # either may have ended so
        ("cd src && grep foo x", 1, "bash: line 1: cd: src: No such file or directory"),
        ("grep foo x || ./mend", 1, ""),
        ("grep foo x; make", 1, ""),
        ("grep foo x", None, ""),
        ("grep foo x | python3 -c 'raise SystemExit(1)'", 1, ""),
        ("echo grep", 1, ""),
        ("", 1, ""),
    ],
)
def test_what_another_program_may_have_said_is_no_answer(line, code, message):
    """Where the exit code may be that of a program that does not answer so, it is a failure."""
    assert not read((line, code, message)).answer


@pytest.mark.parametrize(
    ("line", "code", "message", "expected"),
    [
        (
            "curl -sS api.example.com/v1 | jq .",
            5,
            "curl: (6) Could not resolve host: api.example.com",
            "api.example.com",
        ),
        ("curl -s -o out.json -H 'Host: b.example' https://user:pw@a.example:8443/x", 7, "", "a.example:8443"),
        ("curl -fsS https://a.example/x", 22, "curl: (22) The requested URL returned error: 503", "a.example"),
        ("curl -s http://127.0.0.1:3000", 7, "", "localhost:3000"),
        ("curl -s http://192.0.2.1:$PORT/", 7, "", ""),  # which port is not known
        ("PGPASSWORD=x psql postgresql://me:x@db.internal/app -c x", 2, "", "db.internal:5432"),
        ("psql -p 6000 -c x", 2, "", "localhost:6000"),
        (
            "docker ps | grep web",
            1,
            "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?",
            "docker daemon",
        ),
        ("cd x && git fetch", 128, "ssh: connect to host git.example port 22: Connection refused", "git.example:22"),
        ("gh pr create --body 'see https://a.example/x'", 1, "error connecting to api.github.com", "github.com"),
        ("gh pr checks 3", 1, "error connecting to api.github.com", "github.com"),  # and no answer
        ("gh api a", 1, "HTTP 403: API rate limit exceeded (https://api.github.com/a)", "github.com"),
    ],
)
def test_the_service_of_a_line_is_named_as_the_line_names_it(line, code, message, expected):
    """The name is that of the line, else of the message, else the default; so a success finds it again."""
    found = read((line, code, message))
    assert not found.answer
    assert (found.service, found.kind) == (expected, "away" if expected else "")


def test_rules_name_the_service_of_an_own_program_and_switch_off_a_row():
    """`tools.programs` adds programs to the table, and removes them with an empty service."""
    line = simple_commands("acmectl deploy")
    assert read_failure(line, 1, "connection refused").kind == ""
    found = read_failure(line, 1, "connection refused", {"acmectl": "api.acme.example"})
    assert (found.kind, found.service) == ("away", "api.acme.example")
    assert (
        read_failure(line, 1, "401 Unauthorized", {"acmectl": "api.acme.example"}).service == "acmectl@api.acme.example"
    )
    assert read_failure(simple_commands("curl -s a.example"), 7, "", {"curl": ""}).kind == ""


def test_a_long_message_is_read_at_its_ends_alone():
    """The middle of a long message is not read."""
    filler = "x" * 100_000
    refused = "curl: (7) Failed to connect to a.example port 80"
    assert read(("curl https://a.example", 1, filler + refused)).kind == "away"
    assert read(("curl https://a.example", 1, filler + refused + filler)).kind == ""
