"""The agents as their registry has them: package, how they are started without a person, and what they must be told."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

PROMPT = "do what there is to do"
AGAIN = "go on"


@dataclass(frozen=True)
class Program:
    """One agent.

    Attributes:
        name: as `trustfold connect` knows it.
        package: npm package and version.
        command: what starts it, below `node_modules`.
        words: its arguments.
        environ: variables that lead it to a model; `@model@` is the address, `@home@` its home, `@project@` its folder.
        again: its arguments to go on with its latest session.
        terminal: its arguments in a terminal, where it goes on after the prompt.
        shell: its name for the tool that runs commands.
        settings: file of its configuration below its home, and what stands in it before trustfold comes.
        escapes: how often the escape key stops it in a terminal.
        others: further files below its home that it needs; the same words hold.
    """

    name: str
    package: str
    command: tuple[str, ...]
    words: tuple[str, ...]
    again: tuple[str, ...]
    terminal: tuple[str, ...]
    environ: dict[str, str]
    shell: str
    settings: tuple[str, str]
    others: dict[str, str] = field(default_factory=dict)
    escapes: int = 1


_CODEX_CONFIG = """model = "fake-model"
model_provider = "fake"

[model_providers.fake]
name = "fake"
base_url = "@model@/v1"
wire_api = "responses"
env_key = "FAKE_KEY"

[projects."@project@"]
trust_level = "trusted"
"""
_CLAUDE_STATE = json.dumps(
    {
        "hasCompletedOnboarding": True,
        "customApiKeyResponses": {"approved": ["sk-fake"]},
        "projects": {"@project@": {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}},
    }
)
_OPENCODE_CONFIG = json.dumps(
    {
        "model": "fake/fake-model",
        "provider": {
            "fake": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": "@model@/v1", "apiKey": "x"},
                "models": {"fake-model": {"tool_call": True}},
            }
        },
    }
)

PROGRAMS = (
    Program(
        "claude",
        "@anthropic-ai/claude-agent-sdk-linux-x64@0.3.330",
        ("@anthropic-ai/claude-agent-sdk-linux-x64/claude",),
        ("-p", PROMPT, "--allowedTools", "Bash,Edit,Read", "--output-format", "json"),
        ("-c", "-p", AGAIN, "--allowedTools", "Bash,Edit,Read", "--output-format", "json"),
        (PROMPT, "--permission-mode", "default", "--allowedTools", "Bash,Edit,Read"),
        {
            "ANTHROPIC_BASE_URL": "@model@",
            "ANTHROPIC_API_KEY": "sk-fake",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
        },
        "Bash",
        (".claude/settings.json", '{\n  "includeCoAuthoredBy": false,\n  "env": {"A": "1"}\n}\n'),
        {".claude.json": _CLAUDE_STATE},
    ),
    Program(
        "codex",
        "@openai/codex@0.169.0-linux-x64",
        ("@openai/codex/vendor/x86_64-unknown-linux-musl/bin/codex",),
        ("exec", "-s", "danger-full-access", "--skip-git-repo-check", "--dangerously-bypass-hook-trust", PROMPT),
        ("exec", "resume", "--last", "--skip-git-repo-check", "--dangerously-bypass-hook-trust", AGAIN),
        ("-s", "danger-full-access", "-a", "never", "--dangerously-bypass-hook-trust", PROMPT),
        {"CODEX_HOME": "@home@/.codex", "FAKE_KEY": "x"},
        "Bash",
        (".codex/hooks.json", '{"hooks": {}}\n'),
        {".codex/config.toml": _CODEX_CONFIG, ".codex/auth.json": '{"OPENAI_API_KEY": "x"}'},
    ),
    Program(
        "gemini",
        "@google/gemini-cli@0.61.0",
        ("node", "@google/gemini-cli/bundle/gemini.js"),
        ("-m", "gemini-2.5-flash", "--yolo", "-p", PROMPT),
        ("--resume", "latest", "-m", "gemini-2.5-flash", "--yolo", "-p", AGAIN),
        ("-m", "gemini-2.5-flash", "--yolo", "-i", PROMPT),
        {"GEMINI_API_KEY": "fake", "GOOGLE_GEMINI_BASE_URL": "@model@", "GEMINI_CLI_TRUST_WORKSPACE": "true"},
        "run_shell_command",
        (".gemini/settings.json", '{\n  // mine\n  "security": {"auth": {"selectedType": "gemini-api-key"}}\n}\n'),
    ),
    Program(
        "qwen",
        "@qwen-code/qwen-code@0.24.4",
        ("node", "@qwen-code/qwen-code/cli.js"),
        ("--yolo", "-p", PROMPT),
        ("--continue", "--yolo", "-p", AGAIN),
        ("--yolo", "-i", PROMPT),
        {"OPENAI_API_KEY": "fake", "OPENAI_BASE_URL": "@model@/v1", "OPENAI_MODEL": "fake-model"},
        "run_shell_command",
        (
            ".qwen/settings.json",
            '{\n  "$version": 3,\n  "security": {"auth": {"selectedType": "openai"}}\n}\n',
        ),
    ),
    Program(
        "opencode",
        "opencode-linux-x64@1.18.33",
        ("opencode-linux-x64/bin/opencode",),
        ("run", PROMPT),
        ("run", "--continue", AGAIN),
        ("--prompt", PROMPT),
        {
            "XDG_CONFIG_HOME": "@home@/.config",
            "XDG_CACHE_HOME": "@home@/.cache",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
        },
        "bash",
        (".config/opencode/plugin/trustfold.js", ""),
        {".config/opencode/opencode.json": _OPENCODE_CONFIG},
        escapes=2,
    ),
    Program(
        "copilot",
        "@github/copilot-linux-x64@1.0.102",
        ("@github/copilot-linux-x64/copilot",),
        ("-p", PROMPT, "--allow-all-tools", "--allow-all-paths"),
        ("--continue", "-p", AGAIN, "--allow-all-tools", "--allow-all-paths"),
        ("-i", PROMPT, "--allow-all-tools", "--allow-all-paths"),
        {
            "COPILOT_OFFLINE": "true",
            "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_PROVIDER_BASE_URL": "@model@/v1",
            "COPILOT_MODEL": "fake-model",
            "COPILOT_PROVIDER_API_KEY": "x",
        },
        "bash",
        (".copilot/hooks/trustfold.json", ""),
        {".copilot/config.json": '{"trusted_folders": ["@project@"]}'},
    ),
)
