// trustfold: passes what happens in OpenCode on to `trustfold up` on this machine, and acts on its answers.
// Written by `trustfold connect opencode`; `trustfold connect opencode --remove` takes it away.
import { readFileSync } from "node:fs";

const ENDPOINT = "@ENDPOINT@";
const QUERY = "@QUERY@";
const EVENTS = new Set(["session.idle", "session.compacted", "session.deleted"]);

export const Trustfold = async ({ client, directory }) => {
  const tell = async (hook_event_name, input, output) => {
    try {
      const [address, token] = readFileSync(ENDPOINT, "utf8").split("\n");
      const answer = await fetch(`http://${address}/hooks/opencode${QUERY}`, {
        method: "POST",
        headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
        body: JSON.stringify({ hook_event_name, input, output, directory }),
        signal: AbortSignal.timeout(3000),
      });
      const said = answer.ok ? await answer.json() : {};
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
