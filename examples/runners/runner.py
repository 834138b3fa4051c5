"""A Runner in Python: it deploys an App to each agent that comes online, and reports the outcomes.

usage: runner.py CREDENTIALS NAMESPACE/NAME SPEC.json

It needs pika (`pip install pika`, or python3-pika of Debian). CREDENTIALS is the file that
`pipeops-controlplane runner create` writes. SPEC.json is the body of PUT .../apps/NAME. It prints
one line of JSON for each command and each outcome.
"""

import http.client
import json
import os
import random
import socket
import ssl
import sys
import tempfile
import time
import uuid
from urllib.parse import urlsplit

import pika

TIMEOUT = 30  # seconds, of each call
RENEW_AFTER = 8 * 3600  # seconds
ATTEMPTS = 5  # of each call, with one Idempotency-Key
EXCHANGE = "pipeops.agents"
# RabbitMQ refuses another declaration of the queue (docs/asyncapi.json, runnerQueue).
QUEUE_ARGUMENTS = {
    "x-dead-letter-exchange": "pipeops.dead",
    "x-delivery-limit": 20,
    "x-expires": 2592000000,
    "x-max-length": 100000,
    "x-queue-type": "quorum",
    "x-single-active-consumer": True,
}


class Refused(Exception):
    """An answer of 400 to 499: to send it again does not help."""


class Credentials:
    """The Runner's credentials file. It renews the certificate, and keeps the file up to date."""

    def __init__(self, file):
        self.file, self.renew_at = file, 0
        with open(file) as opened:
            self.content = json.load(opened)
        missing = [field for field in ("controlPlane", "runner", "ca", "certificate", "key") if field not in self.content]
        if missing:
            raise ValueError(f"{file} is no credentials file: {', '.join(missing)} are missing")

    def __getitem__(self, field):
        return self.content[field]

    def tls(self):
        """The Runner's side of mutual TLS."""
        context = ssl.create_default_context(cadata=self["ca"])
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        with tempfile.NamedTemporaryFile("w") as pem:  # mode 0600; Python loads keys from files only
            pem.write(self["certificate"] + self["key"])
            pem.flush()
            context.load_cert_chain(pem.name)
        return context

    def renew(self):
        """Renews the certificate, which is valid for 24 hours, where the last renewal is old."""
        if time.monotonic() < self.renew_at:
            return
        self.content.update(control_plane(self, "POST", "/v1/runner/certificate"))
        new = self.file + ".new"
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
            json.dump(self.content, opened)
        os.replace(new, self.file)
        self.renew_at = time.monotonic() + RENEW_AFTER


class Agent(http.client.HTTPSConnection):
    """A connection to one agent: it dials the edge, and names the agent in SNI."""

    def __init__(self, credentials, agent):
        endpoint = agent["endpoints"][0]
        super().__init__(endpoint["serverName"], timeout=TIMEOUT)
        self.address, self.context = endpoint["address"], credentials.tls()
        self.uri = f"spiffe://{credentials['trustDomain']}/agent/{agent['id']}"

    def connect(self):
        host, port = self.address.rsplit(":", 1)
        plain = socket.create_connection((host.strip("[]"), int(port)), TIMEOUT)
        self.sock = self.context.wrap_socket(plain, server_hostname=self.host)
        if ("URI", self.uri) not in self.sock.getpeercert()["subjectAltName"]:
            raise Refused(f"the peer is not {self.uri}")


def call(connect, method, path, body=None):
    """Sends one command, again where there was no answer, and returns its decoded answer."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": str(uuid.uuid4())}
    for attempt in range(1, ATTEMPTS + 1):
        try:
            connection = connect()
            connection.request(method, path, json.dumps(body) if body else None, headers)
            answer = connection.getresponse()
            raw = answer.read()
            connection.close()
            if answer.status < 400:
                return json.loads(raw)
            problem = f"{method} {path}: {raw.decode(errors='replace')}"
            if answer.status < 500 and answer.status != 429:
                raise Refused(problem)
        except (OSError, http.client.HTTPException) as error:
            problem = f"{method} {path}: {error}"
        if attempt == ATTEMPTS:
            raise ConnectionError(problem)
        time.sleep(random.uniform(0, min(10, 2**attempt)))


def control_plane(credentials, method, path):
    """Calls the control plane's API."""
    at = urlsplit(credentials["controlPlane"])
    tls = credentials.tls()
    return call(lambda: http.client.HTTPSConnection(at.hostname, at.port, timeout=TIMEOUT, context=tls), method, path)


def say(**fields):
    print(json.dumps(fields), flush=True)


class Runner:
    """Deploys one App to all agents."""

    def __init__(self, credentials, app, spec):
        self.credentials, self.spec = credentials, spec
        self.namespace, self.name = app.split("/")
        self.listed = {}  # the sequence of each agent in the list
        self.seen = {}  # that of its last announcement
        self.deployed = set()  # IDs of agents

    def begin(self):
        """Reads the list of agents: the queue is bound, so nothing is missed in between."""
        self.credentials.renew()
        for agent in control_plane(self.credentials, "GET", "/v1/agents")["agents"]:
            self.listed[agent["id"]] = agent["sequence"]
            if agent["state"] == "online":
                self.deploy(agent)

    def deploy(self, agent):
        """Sends the App to an agent that does not have it from this process."""
        if agent["id"] in self.deployed:
            return
        path = f"/v1/namespaces/{self.namespace}/apps/{self.name}"
        try:
            self.credentials.renew()
            app = call(lambda: Agent(self.credentials, agent), "PUT", path, self.spec)
        except (Refused, ConnectionError) as error:
            say(agent=agent["name"], error=str(error))
            return  # its next agent.online is the next try
        self.deployed.add(agent["id"])
        say(agent=agent["name"], deployed=app["name"], generation=app["generation"])

    def take(self, channel, method, _, body):
        """Takes one announcement, and acknowledges it after it is done."""
        event = json.loads(body)
        agent, sequence, previous = event["agentid"], int(event["sequence"]), int(event["previous"])
        seen, listed = self.seen.get(agent, 0), self.listed.get(agent, 0)
        if sequence > seen:  # else it is a repeat
            self.seen[agent] = sequence
            self.act(event, outdated=sequence <= listed)
            if previous != seen if seen else previous > listed:
                self.begin()  # one was missed: the list has the state
        channel.basic_ack(method.delivery_tag)

    def act(self, event, outdated):
        """Does what an announcement asks for. It skips the types that it does not know.

        The list has agents alone: what happened to Apps is news even if the list is newer."""
        kind, data = event["type"].removeprefix("io.pipeops."), event["data"]
        if kind.startswith("agent.") and outdated:
            return
        if kind == "agent.online":
            self.deploy(data)
        elif kind in ("agent.offline", "agent.removed"):
            self.deployed.discard(event["agentid"])
        elif kind.startswith("app.") and (data["namespace"], data["name"]) == (self.namespace, self.name):
            say(agent=event["agentid"], app=self.name, state=kind, cause=data.get("cause"), fix=data.get("fix"))


def consume(credentials, runner):
    """Reads the Runner's queue until the connection is lost."""
    broker = credentials["broker"]
    parameters = pika.URLParameters(random.choice(broker["url"].split()))
    if parameters.ssl_options:
        context = ssl.create_default_context(cadata=broker.get("ca"))
        parameters.ssl_options = pika.SSLOptions(context, parameters.host)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        queue = f"pipeops.runner.{credentials['runner']}"
        channel.queue_declare(queue, durable=True, arguments=QUEUE_ARGUMENTS)
        channel.queue_bind(queue, EXCHANGE, f"to.{credentials['runner']}.#")
        runner.begin()
        channel.basic_qos(prefetch_count=100)
        channel.basic_consume(queue, runner.take)
        channel.start_consuming()


def main():
    if len(sys.argv) != 4 or sys.argv[2].count("/") != 1:
        sys.exit(__doc__)
    try:
        credentials = Credentials(sys.argv[1])
        with open(sys.argv[3]) as file:
            runner = Runner(credentials, sys.argv[2], json.load(file))
    except (OSError, ValueError) as error:
        sys.exit(f"runner.py: {error}")
    if not credentials.content.get("broker"):
        sys.exit("runner.py: the credentials name no broker: start the control plane with --broker-url-file")
    while True:
        try:
            consume(credentials, runner)
        except Refused as error:
            sys.exit(f"runner.py: {error}")
        except pika.exceptions.AMQPError as error:
            say(error=f"RabbitMQ: {error!r}")
        except OSError as error:
            say(error=str(error))
        time.sleep(random.uniform(1, 5))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
