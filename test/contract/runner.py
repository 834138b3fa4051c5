"""A Runner of Python's standard library alone, written from docs/reference/runner-api.md and the documents.

runner.py CREDENTIALS lists the agents, calls the first of them as its OpenAPI document's examples
do, and exits with 1 if an answer is not in the document. It prints how many calls it made.
"""

import http.client
import json
import os
import re
import socket
import ssl
import sys
import tempfile
from urllib.parse import urlsplit

TIMEOUT = 60  # seconds


def tls(credentials, folder):
    """The Runner's side of mutual TLS."""
    pem = os.path.join(folder, "runner.pem")
    with open(os.open(pem, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(credentials["certificate"] + credentials["key"])
    context = ssl.create_default_context(cadata=credentials["ca"])
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(pem)
    return context


class Agent(http.client.HTTPSConnection):
    """A connection to the edge whose SNI is the agent's name."""

    def __init__(self, server_name, address, context):
        super().__init__(server_name, timeout=TIMEOUT, context=context)
        self.address, self.tls = address, context

    def connect(self):
        host, port = self.address.rsplit(":", 1)
        plain = socket.create_connection((host.strip("[]"), int(port)), TIMEOUT)
        self.sock = self.tls.wrap_socket(plain, server_hostname=self.host)


def exchange(connection, method, path, body=None, media=None):
    """One call: status, headers and body; of a stream the first line alone."""
    headers = {"Content-Type": media} if media else {}
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    if answer.getheader("Content-Type") == "text/event-stream":
        raw = answer.readline()
        connection.close()
    else:
        raw = answer.read()
    return answer.status, answer.headers, raw


def first_agent(credentials, context):
    """The first endpoint of the first agent that the control plane lists."""
    at = urlsplit(credentials["controlPlane"])
    plane = http.client.HTTPSConnection(at.hostname, at.port, timeout=TIMEOUT, context=context)
    _, _, raw = exchange(plane, "GET", "/v1/openapi.json")
    document = json.loads(raw)
    status, headers, raw = exchange(plane, "GET", "/v1/agents")
    check(document["paths"]["/v1/agents"]["get"], "list-agents", status, headers, raw)
    agents = json.loads(raw)["agents"]
    for name, known in [(agents[0]["name"], True), (agents[0]["id"], True), ("nobody", False)]:
        status, headers, raw = exchange(plane, "GET", "/v1/agents/" + name)
        check(document["paths"]["/v1/agents/{agent}"]["get"], "get-agent", status, headers, raw)
        assert status == (200 if known else 404), raw
    status, headers, raw = exchange(plane, "POST", "/v1/runner/certificate")
    check(document["paths"]["/v1/runner/certificate"]["post"], "renew-certificate", status, headers, raw)
    assert status == 200 and json.loads(raw)["certificate"], raw
    endpoint = agents[0]["endpoints"][0]
    return Agent(endpoint["serverName"], endpoint["address"], context)


def check(operation, name, status, headers, raw):
    """Fails where an answer is not in the document."""
    answer = operation["responses"].get(str(status)) or operation["responses"].get("default")
    assert answer, f"{name}: status {status} is not in the document: {raw!r}"
    assert headers.get("Request-Id"), f"{name}: no Request-Id"
    media = (headers.get("Content-Type") or "").split(";")[0]
    if answer.get("content"):
        assert media in answer["content"], f"{name}: {status} has the content type {media}"
    if media.endswith("json") and raw:
        json.loads(raw)


ORDER = {"put": 0, "post": 1, "get": 2, "delete": 3}
LINE = re.compile(r'"https://\$AGENT([^"]*)"')
BODY = re.compile(r"-d '(.*)'$", re.S)


def examples(document):
    """The lines of curl: what writes before what reads, and deletes last."""
    for path, calls in document["paths"].items():
        for method, operation in calls.items():
            for sample in operation.get("x-codeSamples", []):
                if sample["label"] == "curl":
                    depth = path.count("/") if method == "delete" else -path.count("/")
                    yield (ORDER[method], -depth, path), method.upper(), operation, sample["source"]


def main():
    with open(sys.argv[1]) as file:
        credentials = json.load(file)
    with tempfile.TemporaryDirectory() as folder:
        context = tls(credentials, folder)
    agent = first_agent(credentials, context)
    status, _, raw = exchange(agent, "GET", "/openapi.json")
    assert status == 200, status
    document = json.loads(raw)
    operation_id, done, good = "none", 0, 0
    for _, method, operation, line in sorted(examples(document), key=lambda example: example[0]):
        path = LINE.search(line).group(1).replace("$NODE", "none").replace("$OPERATION", operation_id)
        if method == "DELETE" and path.startswith("/v1/namespaces/staging"):
            path += "?dryRun=true"  # the cluster of the test has nobody who ends a namespace
        body = BODY.search(line)
        sent = body.group(1).encode() if body else None
        status, headers, raw = exchange(agent, method, path, sent, "application/json" if body else None)
        check(operation, operation["operationId"], status, headers, raw)
        operation_id = headers.get("Operation-Id", operation_id).lower()
        done, good = done + 1, good + (status < 300)
    print(json.dumps({"calls": done, "succeeded": good}))


if __name__ == "__main__":
    main()
