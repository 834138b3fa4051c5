# The images of the agent, the control plane and the Runner. Without a Docker engine `make image`
# builds the same ones (scratch, one static binary, user 65532) with go-containerregistry.
# A release's are those of `make release`, which needs no base at all.
#
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION=v1.2.3 -t pipeops/agent:v1.2.3 .
#   docker buildx build --target controlplane ... -t pipeops/controlplane:v1.2.3 .
#   docker buildx build --target runner ... -t pipeops/runner:v1.2.3 .

FROM --platform=$BUILDPLATFORM golang:1.26.8-bookworm@sha256:a688600ca24f8a4d3ca77f95b0dd40704a9fc787c826660eb7ba0b641b8b175d AS build
ARG TARGETOS TARGETARCH VERSION=dev COMMIT=none
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    for program in agent controlplane runner; do \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath \
    -ldflags "-s -w -X main.version=$VERSION -X main.commit=$COMMIT" -o /out/pipeops-$program ./cmd/$program || exit 1; done && \
    mkdir -p -m 1777 /out/tmp && mkdir -p -m 700 /out/data && \
    printf 'root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n' > /out/passwd

FROM scratch AS base
ARG VERSION=dev COMMIT=none
LABEL org.opencontainers.image.source="https://github.com/pipeops/pipeops-vm-agent" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$COMMIT"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/passwd /etc/passwd
COPY --from=build /out/tmp /tmp
ENV HOME=/tmp
USER 65532:65532

FROM base AS controlplane
LABEL org.opencontainers.image.title="PipeOps control plane"
COPY --from=build /out/pipeops-controlplane /pipeops-controlplane
# A new volume that is mounted here gets this owner.
COPY --from=build --chown=65532:65532 --chmod=700 /out/data /var/lib/pipeops-controlplane
ENTRYPOINT ["/pipeops-controlplane"]

FROM base AS runner
LABEL org.opencontainers.image.title="PipeOps Runner"
COPY --from=build /out/pipeops-runner /pipeops-runner
ENTRYPOINT ["/pipeops-runner"]

FROM base
LABEL org.opencontainers.image.title="PipeOps VM Agent"
COPY --from=build /out/pipeops-agent /pipeops-agent
ENTRYPOINT ["/pipeops-agent"]
