{{- define "pipeops-controlplane.labels" -}}
{{ include "pipeops-controlplane.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "pipeops-controlplane.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default "pipeops-controlplane" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Several control planes may live side by side, each with the name of its release. */ -}}
{{- define "pipeops-controlplane.name" -}}
{{- $name := .Values.nameOverride | default "pipeops-controlplane" }}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride }}
{{- else if contains $name .Release.Name }}{{ .Release.Name }}
{{- else }}{{ printf "%s-%s" .Release.Name $name }}{{ end }}
{{- end }}

{{- define "pipeops-controlplane.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "pipeops-controlplane.name" .) }}
{{- end }}

{{- /* What both Services take: a dict of top and the Service's values. */ -}}
{{- define "pipeops-controlplane.service" -}}
metadata:
  name: {{ .name }}
  namespace: {{ .top.Release.Namespace }}
  labels:
    {{- mergeOverwrite (fromYaml (include "pipeops-controlplane.labels" .top)) .service.labels | toYaml | nindent 4 }}
  {{- with .service.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: {{ .service.type }}
  {{- if ne .service.type "ClusterIP" }}
  externalTrafficPolicy: {{ .service.externalTrafficPolicy }}
  {{- end }}
  {{- range $key := list "loadBalancerClass" "loadBalancerSourceRanges" "clusterIP" "ipFamilyPolicy" "ipFamilies" }}
  {{- with index $.service $key }}
  {{ $key }}: {{ toJson . }}
  {{- end }}
  {{- end }}
{{- end }}

{{- /* One port of such a Service: a dict of service and name. */ -}}
{{- define "pipeops-controlplane.port" -}}
- name: {{ .name }}
  port: {{ index .service.ports .name }}
  targetPort: {{ .name }}
  {{- with index .service.nodePorts .name }}
  nodePort: {{ . }}
  {{- end }}
{{- end }}

{{- /* Every key is a flag of `pipeops-controlplane serve`. */ -}}
{{- define "pipeops-controlplane.settings" -}}
PIPEOPS_DATA_DIR: /var/lib/pipeops-controlplane/data
PIPEOPS_ADVERTISE_API: {{ .Values.advertise.api | quote }}
PIPEOPS_ADVERTISE_TUNNEL: {{ .Values.advertise.tunnel | quote }}
PIPEOPS_ADVERTISE_EDGE: {{ .Values.advertise.edge | quote }}
PIPEOPS_AGENTS_DOMAIN: {{ .Values.agentsDomain | quote }}
PIPEOPS_TRUST_DOMAIN: {{ .Values.trustDomain | quote }}
PIPEOPS_HEARTBEAT_INTERVAL: {{ .Values.heartbeatInterval | quote }}
PIPEOPS_CERTIFICATE_TTL: {{ .Values.certificateTtl | quote }}
PIPEOPS_LOG_LEVEL: {{ .Values.logLevel | quote }}
{{- if .Values.metrics.enabled }}
PIPEOPS_METRICS_LISTEN: ":9090"
{{- end }}
{{- if .Values.gateway.domain }}
{{ include "pipeops-controlplane.gateway-settings" . }}
PIPEOPS_GATEWAY_CONSOLE: {{ .Values.gateway.console | quote }}
{{- if .Values.gateway.apart.enabled }}
PIPEOPS_GATEWAY_APART: "true"
{{- end }}
{{- end }}
{{- include "pipeops-controlplane.limit-settings" . }}
{{- with .Values.limits }}
{{- range $name, $value := dict "EVENTS" .outboxEvents "EVENTS_PER_AGENT" .outboxEventsPerAgent "BYTES" .outboxBytes }}
{{- with $value }}
PIPEOPS_OUTBOX_{{ $name }}: {{ int64 . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.webhookCA.existingConfigMap }}
PIPEOPS_WEBHOOK_CA: /etc/pipeops/webhook-ca/ca.crt
{{- end }}
{{- include "pipeops-controlplane.openid-settings" . }}
{{- include "pipeops-controlplane.database-settings" . }}
{{- with .Values.sharedCA }}
{{- if .existingSecret }}
PIPEOPS_CA_KEY_FILE: /etc/pipeops/ca-key/{{ .key }}
{{- end }}
{{- end }}
{{- with .Values.broker }}
{{- if .existingSecret }}
PIPEOPS_BROKER_URL_FILE: /etc/pipeops/broker/{{ .urlKey }}
{{- with .runnerUrlKey }}
PIPEOPS_RUNNER_BROKER_URL_FILE: /etc/pipeops/broker/{{ . }}
{{- end }}
{{- with .caKey }}
PIPEOPS_BROKER_CA: /etc/pipeops/broker/{{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Rules of a NetworkPolicy for the public's ports of the gateway. */ -}}
{{- define "pipeops-controlplane.public-ports" -}}
- port: https
- port: http
{{- if .http3 }}
- port: http3
  protocol: UDP
{{- end }}
{{- range $protocol, $open := dict "TCP" .tcpPorts "UDP" .udpPorts }}
{{- range $open }}
{{- $range := toString . | splitList "-" }}
- port: {{ first $range }}
  endPort: {{ last $range }}
  protocol: {{ $protocol }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* Volume with the certificates of Secrets, as SECRET.crt and SECRET.key. */ -}}
{{- define "pipeops-controlplane.gateway-certificates" -}}
- name: gateway
  projected:
    defaultMode: 0440
    sources:
      {{- range . }}
      - secret:
          name: {{ . }}
          items:
            - key: tls.crt
              path: {{ . }}.crt
            - key: tls.key
              path: {{ . }}.key
      {{- end }}
{{- end -}}

{{- /* Secret with the key for updates of DNS; empty for none. */ -}}
{{- define "pipeops-controlplane.dns-secret" -}}
{{- if or .server (and .provider (ne .provider "route53")) -}}
{{- required "gateway.dnsUpdates.existingSecret: is missing; name the Secret with the key for updates" .existingSecret -}}
{{- else if .provider -}}
{{- .existingSecret -}}
{{- end -}}
{{- end -}}

{{- /* Flags of `serve` and of `gateway serve` alike. */ -}}
{{- define "pipeops-controlplane.gateway-settings" -}}
{{- with .Values.gateway -}}
PIPEOPS_GATEWAY_DOMAIN: {{ .domain | quote }}
PIPEOPS_GATEWAY_HTTPS: ":9443"
PIPEOPS_GATEWAY_HTTP: ":9080"
PIPEOPS_GATEWAY_HTTPS_PORT: {{ .service.ports.https | quote }}
PIPEOPS_GATEWAY_CA: {{ .ca | quote }}
PIPEOPS_GATEWAY_HSTS: {{ .hsts | quote }}
PIPEOPS_GATEWAY_HTTP3: {{ .http3 | quote }}
PIPEOPS_GATEWAY_ACCESS_LOG: {{ .accessLog | quote }}
PIPEOPS_GATEWAY_MODE: {{ .mode | quote }}
{{- with .directAllow }}
PIPEOPS_GATEWAY_DIRECT_ALLOW: {{ join "," . | quote }}
{{- end }}
{{- with .directDeny }}
PIPEOPS_GATEWAY_DIRECT_DENY: {{ join "," . | quote }}
{{- end }}
{{- range $of, $most := dict "REQUESTS" .maxRequests "STREAMS" .maxStreams "FLOWS" .maxFlows }}
{{- range $per, $value := dict "" $most.all "_PER_ADDRESS" $most.perAddress "_PER_HOST" $most.perHost "_PER_AGENT" $most.perAgent }}
{{- with $value }}
PIPEOPS_GATEWAY_MAX_{{ $of }}{{ $per }}: {{ int64 . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- if .caRoots.existingConfigMap }}
PIPEOPS_GATEWAY_CA_ROOTS: /etc/pipeops/gateway-ca/ca.crt
{{- end }}
{{- with .email }}
PIPEOPS_GATEWAY_EMAIL: {{ . | quote }}
{{- end }}
{{- with .resolvers }}
PIPEOPS_GATEWAY_RESOLVER: {{ join "," . | quote }}
{{- end }}
{{- with .tcpPorts }}
PIPEOPS_GATEWAY_TCP_PORTS: {{ join "," . | quote }}
{{- end }}
{{- with .udpPorts }}
PIPEOPS_GATEWAY_UDP_PORTS: {{ join "," . | quote }}
{{- end }}
{{- with .eab }}
{{- if .keyId }}
PIPEOPS_GATEWAY_EAB_KEY_ID: {{ .keyId | quote }}
PIPEOPS_GATEWAY_EAB_KEY_FILE: /etc/pipeops/gateway-eab/{{ .key }}
{{- end }}
{{- end }}
{{- with .dnsUpdates }}
{{- with .provider }}
PIPEOPS_GATEWAY_DNS_PROVIDER: {{ . | quote }}
{{- end }}
{{- with .server }}
PIPEOPS_GATEWAY_DNS_SERVER: {{ . | quote }}
{{- end }}
{{- if include "pipeops-controlplane.dns-secret" . }}
PIPEOPS_GATEWAY_DNS_KEY_FILE: /etc/pipeops/gateway-dns/{{ .key }}
{{- end }}
{{- end }}
{{- with .proxyProtocol }}
PIPEOPS_GATEWAY_PROXY_PROTOCOL: {{ join "," . | quote }}
{{- end }}
{{- if .certificateSecrets }}
PIPEOPS_GATEWAY_CERTIFICATES: /etc/pipeops/gateway
{{- end }}
{{- end }}
{{- end }}

{{- define "pipeops-controlplane.limit-settings" }}
{{- with .Values.limits }}
{{- range $name, $value := dict "MAX_CONNECTIONS" .maxConnections "MAX_CONNECTIONS_PER_ADDRESS" .maxConnectionsPerAddress "NEW_CONNECTIONS_PER_ADDRESS" .newConnectionsPerAddress }}
{{- with $value }}
PIPEOPS_{{ $name }}: {{ int64 . | quote }}
{{- end }}
{{- end }}
{{- with .sharedAddresses }}
PIPEOPS_SHARED_ADDRESS: {{ join "," . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "pipeops-controlplane.openid-settings" }}
{{- with .Values.openid }}
{{- if .issuer }}
{{- $roles := list }}
{{- range $group, $role := .roles }}
{{- $roles = append $roles (printf "%s=%s" $group $role | replace "\"" "\"\"" | printf "\"%s\"") }}
{{- end }}
PIPEOPS_OPENID_ISSUER: {{ .issuer | quote }}
PIPEOPS_OPENID_CLIENT_ID: {{ .clientId | quote }}
PIPEOPS_OPENID_CLIENT_SECRET_FILE: /etc/pipeops/openid/{{ .key }}
PIPEOPS_OPENID_NAME_CLAIM: {{ .nameClaim | quote }}
PIPEOPS_OPENID_GROUPS_CLAIM: {{ .groupsClaim | quote }}
{{- with .scopes }}
PIPEOPS_OPENID_SCOPE: {{ join "," . | quote }}
{{- end }}
PIPEOPS_OPENID_ROLE: {{ join "," $roles | quote }}
{{- if .ca.existingConfigMap }}
PIPEOPS_OPENID_CA: /etc/pipeops/openid-ca/ca.crt
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "pipeops-controlplane.database-settings" }}
{{- with .Values.database }}
{{- if .existingSecret }}
PIPEOPS_DATABASE_FILE: /etc/pipeops/database/{{ .urlKey }}
{{- with .caKey }}
PIPEOPS_DATABASE_CA: /etc/pipeops/database/{{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "pipeops-controlplane.gateway-selector" -}}
app.kubernetes.io/name: {{ with .Values.nameOverride }}{{ . }}-gateway{{ else }}pipeops-gateway{{ end }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Every key is a flag of `pipeops-controlplane gateway serve`. */ -}}
{{- define "pipeops-controlplane.apart-settings" -}}
PIPEOPS_LINK_KEY_FILE: /etc/pipeops/link-key/{{ .Values.gateway.apart.key }}
PIPEOPS_LOG_LEVEL: {{ .Values.logLevel | quote }}
{{- if .Values.metrics.enabled }}
PIPEOPS_METRICS_LISTEN: ":9090"
{{- end }}
{{ include "pipeops-controlplane.gateway-settings" . }}
{{- include "pipeops-controlplane.limit-settings" . }}
{{- include "pipeops-controlplane.database-settings" . }}
{{- end }}
