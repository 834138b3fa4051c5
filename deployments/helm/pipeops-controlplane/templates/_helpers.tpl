{{- define "pipeops-controlplane.labels" -}}
app.kubernetes.io/name: pipeops-controlplane
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "pipeops-controlplane.selector" -}}
app.kubernetes.io/name: pipeops-controlplane
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Several control planes may live side by side, each with the name of its release. */ -}}
{{- define "pipeops-controlplane.name" -}}
{{- if contains "pipeops-controlplane" .Release.Name }}{{ .Release.Name }}{{ else }}{{ printf "%s-pipeops-controlplane" .Release.Name }}{{ end }}
{{- end }}

{{- define "pipeops-controlplane.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
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
{{- with .Values.database }}
{{- if .existingSecret }}
PIPEOPS_DATABASE_FILE: /etc/pipeops/database/{{ .urlKey }}
{{- with .caKey }}
PIPEOPS_DATABASE_CA: /etc/pipeops/database/{{ . }}
{{- end }}
{{- end }}
{{- end }}
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
