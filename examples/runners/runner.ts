// A Runner in TypeScript: it deploys an image to each agent that has a label, and follows the
// rollouts to their outcomes. It needs Node.js 22.18 alone; an earlier one runs what esbuild makes of
// it.
//
// usage: node runner.ts CREDENTIALS LABEL=VALUE NAMESPACE/NAME IMAGE
//
// CREDENTIALS is the file that `pipeops-controlplane runner create` writes. It exits with 1 if an
// App did not become healthy.

import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { request, type RequestOptions } from "node:https";
import type { IncomingMessage } from "node:http";
import { checkServerIdentity, type PeerCertificate } from "node:tls";
import { setTimeout as pause } from "node:timers/promises";

const timeout = 60_000; // milliseconds without a byte; streams have a heartbeat in between
const attempts = 5; // of each call, with one Idempotency-Key

interface Credentials {
  controlPlane: string;
  trustDomain: string;
  ca: string;
  certificate: string;
  key: string;
}

interface Agent {
  id: string;
  name: string;
  state: string;
  labels?: Record<string, string>;
  endpoints: { address: string; serverName: string }[];
}

interface Diagnosis {
  cause: string;
  message: string;
  fix: string;
}

interface AppEvent {
  generation: number;
  settled: boolean;
  status: { phase: string; diagnosis?: Diagnosis };
}

interface Problem {
  status: number;
  code: string;
  field?: string;
  detail: string;
  fix?: string;
}

/** Refused is an answer of 400 to 499: to send it again does not help. */
class Refused extends Error {}

/** A Runner calls the control plane, and agents through its edge. */
class Runner {
  private readonly credentials: Credentials;

  constructor(credentials: Credentials) {
    this.credentials = credentials;
  }

  /** Returns the agents that have a label. */
  async agents(label: string, value: string): Promise<Agent[]> {
    const at = new URL(this.credentials.controlPlane);
    const address = { host: at.hostname, port: at.port || 443, path: "/v1/agents" };
    const list: { agents: Agent[] } = JSON.parse(await text(await this.call(address)));
    return list.agents.filter((agent) => agent.labels?.[label] === value);
  }

  /** Deploys an image, and returns the generation of the App's spec. */
  async deploy(agent: Agent, app: string, image: string): Promise<number> {
    const to = { ...this.through(agent), method: "PUT", path: appPath(app) };
    const spec = JSON.stringify({ image, ports: [{ port: 8080 }] });
    return JSON.parse(await text(await this.call(to, spec))).generation;
  }

  /** Yields the App's states until a generation of its spec has come to its outcome. */
  async *follow(agent: Agent, app: string, generation: number): AsyncGenerator<AppEvent> {
    for (;;) {
      const to = { ...this.through(agent), path: appPath(app) + "/events" };
      for await (const event of events<AppEvent>(await this.call(to))) {
        if (event.generation < generation) continue;
        yield event;
        if (event.settled) return;
      }
      await pause(1000); // the stream broke off: the next one begins with the state
    }
  }

  /** The edge's address, and the agent's name, which the edge routes by. */
  private through(agent: Agent): RequestOptions {
    if (agent.endpoints.length === 0) throw new Refused(`agent ${agent.name} has never been online`);
    const { address, serverName } = agent.endpoints[0];
    const uri = `URI:spiffe://${this.credentials.trustDomain}/agent/${agent.id}`;
    return {
      host: address.slice(0, address.lastIndexOf(":")).replace(/^\[|\]$/g, ""),
      port: address.slice(address.lastIndexOf(":") + 1),
      servername: serverName,
      headers: { host: serverName },
      checkServerIdentity: (_, certificate: PeerCertificate) =>
        certificate.subjectaltname?.split(", ").includes(uri)
          ? checkServerIdentity(serverName, certificate)
          : new Refused(`the peer is not ${uri}`),
    };
  }

  /** Sends a command, again where there was no answer. */
  private async call(to: RequestOptions, body?: string): Promise<IncomingMessage> {
    const headers = { ...to.headers, "idempotency-key": randomUUID(), "content-type": "application/json" };
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.send({ ...to, headers }, body);
      } catch (error) {
        if (error instanceof Refused || attempt === attempts) throw error;
        await pause(Math.random() * 1000 * 2 ** attempt);
      }
    }
  }

  private send(to: RequestOptions, body?: string): Promise<IncomingMessage> {
    const { ca, certificate: cert, key } = this.credentials;
    return new Promise((resolve, reject) => {
      const sent = request({ ...to, ca, cert, key, minVersion: "TLSv1.3", timeout }, (answer) => {
        const status = answer.statusCode ?? 0;
        if (status < 400) return resolve(answer);
        text(answer).then((raw) => reject(refusal(status, raw)), reject);
      });
      sent.on("timeout", () => sent.destroy(new Error(`no byte came for ${timeout} ms`)));
      sent.on("error", reject);
      sent.end(body);
    });
  }
}

function appPath(app: string): string {
  const [namespace, name] = app.split("/");
  return `/v1/namespaces/${encodeURIComponent(namespace)}/apps/${encodeURIComponent(name)}`;
}

/** Reads a problem (RFC 9457). */
function refusal(status: number, raw: string): Error {
  let message = raw;
  try {
    const problem: Problem = JSON.parse(raw);
    message = [`${problem.code}:`, problem.field, problem.detail + ";", problem.fix].filter(Boolean).join(" ");
  } catch {
    // a proxy in between that does not speak JSON
  }
  return status < 500 && status !== 429 ? new Refused(message) : new Error(message);
}

async function text(answer: IncomingMessage): Promise<string> {
  let all = "";
  for await (const chunk of answer.setEncoding("utf8")) all += chunk;
  return all;
}

/** Yields the data of server-sent events. */
async function* events<T>(answer: IncomingMessage): AsyncGenerator<T> {
  let rest = "";
  for await (const chunk of answer.setEncoding("utf8")) {
    const blocks = (rest + chunk).split("\n\n");
    rest = blocks.pop() ?? "";
    for (const block of blocks) {
      const lines = block.split("\n");
      if (lines.includes("event: error")) return;
      const data = lines.filter((line) => line.startsWith("data:")).map((line) => line.slice(5));
      if (data.length > 0) yield JSON.parse(data.join("\n"));
    }
  }
}

/** Deploys to one agent, and reports whether the App became healthy. */
async function rollOut(runner: Runner, agent: Agent, app: string, image: string): Promise<boolean> {
  const generation = await runner.deploy(agent, app, image);
  let healthy = false;
  for await (const { status } of runner.follow(agent, app, generation)) {
    const { cause, message, fix } = status.diagnosis ?? {};
    console.log(JSON.stringify({ agent: agent.name, app, generation, phase: status.phase, cause, message, fix }));
    healthy = status.phase === "Healthy";
  }
  return healthy;
}

async function main([file, label, app, image]: string[]): Promise<void> {
  if (!image || !label.includes("=") || app.split("/").length !== 2) {
    throw new Error("usage: runner.ts CREDENTIALS LABEL=VALUE NAMESPACE/NAME IMAGE");
  }
  const runner = new Runner(JSON.parse(readFileSync(file, "utf8")));
  const [key, value] = label.split("=", 2);
  const agents = await runner.agents(key, value);
  if (agents.length === 0) throw new Error(`no agent has the label ${label}`);
  const outcomes = await Promise.all(agents.map((agent) => rollOut(runner, agent, app, image)));
  process.exitCode = outcomes.every(Boolean) ? 0 : 1;
}

main(process.argv.slice(2)).catch((error: Error) => {
  console.error(error.message);
  process.exitCode = 1;
});
