// trustfold: passes what happens in OpenCode on to `trustfold up` on this machine, and acts on its answers.
// Written by `trustfold connect opencode`; `trustfold connect opencode --remove` takes it away.
import { createHash } from "node:crypto";
import { readFileSync, statSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { join } from "node:path";

const HOME = "@HOME@";
const LATE = join(HOME, "hooks.late"); // its time is that of the latest answer that did not come
const QUERY = "@QUERY@";
const EVENTS = new Set(["session.idle", "session.compacted", "session.deleted"]);
const ANSWER_MS = 500;
const PAUSE_MS = 30_000;
const MAX_CHARS = 1 << 20;
const KEPT = [[262_144, 4_096], [65_536, 1_024], [16_384, 256], [4_096, 64]]; // characters, elements: see hook_client.py

// What happened as JSON; if it is large, without the middle of long texts and lists, in place of which a digest stands.
const written = (told) => {
  let text = JSON.stringify(told);
  for (const [characters, elements] of KEPT) {
    if (text.length <= MAX_CHARS) break;
    text = JSON.stringify(told, (_, value) => {
      const isText = typeof value === "string";
      const most = isText ? characters : elements;
      if (!(isText || Array.isArray(value)) || value.length <= most) return value;
      const digest = createHash("sha256").update(isText ? value : JSON.stringify(value)).digest("hex").slice(0, 16);
      const [start, end] = [value.slice(0, most - most / 4), value.slice(-most / 4)];
      const mark = ` ... ${value.length - most} more, ${digest} ... `;
      return isText ? start + mark + end : [...start, mark, ...end];
    });
  }
  return text;
};

const isPausing = () => {
  const age = Date.now() - (statSync(LATE, { throwIfNoEntry: false })?.mtimeMs ?? 0);
  return age >= 0 && age < PAUSE_MS;
};

const isPrivate = () => {
  const { uid, mode } = statSync(HOME);
  return uid === process.geteuid() && !(mode & 0o077);
};

// Nobody else can have made a socket in a folder that is its owner's alone.
const post = (body) => {
  let timer;
  return new Promise((resolve, reject) => {
    const token = readFileSync(join(HOME, "endpoint"), "utf8").split("\n")[1];
    const sent = request({
      socketPath: join(HOME, "trustfold.sqlite.sock"),
      path: `/hooks/opencode${QUERY}`,
      method: "POST",
      headers: {
        host: "localhost",
        authorization: `Bearer ${token}`,
        "content-type": "application/json",
        "content-length": Buffer.byteLength(body),
      },
    });
    timer = setTimeout(() => {
      reject(new Error("late")); // Bun reports no error of a request that is destroyed
      sent.destroy();
      try {
        rmSync(LATE, { force: true });
        writeFileSync(LATE, "", { flag: "wx", mode: 0o600 });
      } catch {}
    }, ANSWER_MS);
    sent.on("error", reject);
    sent.on("response", (answer) => {
      let text = "";
      answer.setEncoding("utf8").on("error", reject).on("data", (part) => (text += part));
      answer.on("end", () => resolve(answer.statusCode === 200 ? text : "{}"));
    });
    sent.end(body);
  }).finally(() => clearTimeout(timer));
};

export const Trustfold = async ({ client, directory }) => {
  const parents = new Map(); // sessions of agents, by the session that began them
  const tell = async (hook_event_name, input, output) => {
    const parent = parents.get(input?.sessionID);
    try {
      if (!isPrivate() || isPausing()) return {};
      const said = JSON.parse(await post(written({ hook_event_name, input, output, directory, parent })));
      if (said.notice) client.tui.showToast({ body: { message: said.notice, variant: "warning" } }).catch(() => {});
      return said;
    } catch {
      return {};
    }
  };
  const owed = new Map(); // texts for the next request: what is said about a tool that throws has no result to stand in
  return {
    "experimental.chat.system.transform": async ({ sessionID }, { system }) => {
      const text = owed.get(sessionID);
      if (text) system.push(text);
      owed.delete(sessionID);
    },
    "chat.message": async (input, output) => {
      const texts = output.parts.filter((part) => part.type === "text" && !part.synthetic).map((part) => part.text);
      await tell("chat.message", input, { text: texts.join("\n") });
    },
    "tool.execute.before": async (input, output) => {
      const { refusal } = await tell("tool.execute.before", input, { args: output.args });
      if (refusal) throw new Error(refusal);
    },
    "tool.execute.after": async (input, output) => {
      const { context } = await tell("tool.execute.after", input, {
        output: output.output,
        metadata: { exit: output.metadata?.exit },
      });
      if (context) output.output += `\n\n${context}`;
    },
    "experimental.text.complete": async (input, output) => {
      await tell("text.complete", input, { text: output.text });
    },
    event: async ({ event }) => {
      const begun = event.type === "session.created" ? event.properties?.info : undefined;
      if (begun?.parentID) parents.set(begun.id, begun.parentID);
      const part = event.properties?.part;
      const failed = event.type === "message.part.updated" && part?.type === "tool" && part.state?.status === "error";
      if (failed) {
        const { context, pause } = await tell("event:message.part.updated", { sessionID: part.sessionID, part }, {});
        if (context) owed.set(part.sessionID, [owed.get(part.sessionID), context].filter(Boolean).join("\n\n"));
        if (pause) await client.session.abort({ path: { id: part.sessionID } }).catch(() => {});
      } else if (EVENTS.has(event.type)) await tell(`event:${event.type}`, event.properties, {});
    },
  };
};
