{{- define "pipeops-agent.labels" -}}
app.kubernetes.io/name: pipeops-agent
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "pipeops-agent.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- /* What the agent reads from its environment and is no secret. */ -}}
{{- define "pipeops-agent.settings" -}}
PIPEOPS_CONTROL_PLANE_URL: {{ .Values.agent.controlPlaneUrl | quote }}
CLUSTER_NAME: {{ .Values.agent.clusterName | quote }}
LOG_LEVEL: {{ .Values.agent.logLevel | quote }}
ENABLE_INGRESS_SYNC: {{ .Values.agent.enableIngressSync | quote }}
{{- with .Values.agent.namespaces }}
PIPEOPS_NAMESPACES: {{ join "," . | quote }}
{{- end }}
{{- with .Values.proxy.https }}
HTTPS_PROXY: {{ . | quote }}
{{- end }}
{{- with .Values.selfUpdate }}
{{- if .enabled }}
PIPEOPS_SELF_UPDATE: "true"
PIPEOPS_UPDATE_WINDOW: {{ .window | quote }}
PIPEOPS_UPDATE_KEYS: {{ join "," .keys | quote }}
PIPEOPS_UPDATE_DEADLINE: {{ .deadline | quote }}
{{- end }}
{{- end }}
{{- if or .Values.customCA.pem .Values.customCA.existingConfigMap }}
PIPEOPS_CA_FILE: /etc/pipeops/ca/ca.crt
{{- end }}
{{- end }}

{{- /* What the schema cannot say. Every message names the value and the way out. */ -}}
{{- define "pipeops-agent.check" -}}
{{- if .Values.agent.enableIngressSync }}
{{- fail "agent.enableIngressSync: this version of the agent has no ingress sync (fix: leave it out, or set it to false)" }}
{{- end }}
{{- if .Values.agent.autoInstallComponents }}
{{- fail "agent.autoInstallComponents: this version of the agent installs no components (fix: leave it out, or set it to false)" }}
{{- end }}
{{- if and .Values.agent.token .Values.agent.existingSecret }}
{{- fail "agent.token, agent.existingSecret: both are set (fix: set one; existingSecret keeps the token out of the release)" }}
{{- end }}
{{- if and .Values.proxy.https .Values.proxy.existingSecret }}
{{- fail "proxy.https, proxy.existingSecret: both are set (fix: set one)" }}
{{- end }}
{{- if and .Values.customCA.pem .Values.customCA.existingConfigMap }}
{{- fail "customCA.pem, customCA.existingConfigMap: both are set (fix: set one)" }}
{{- end }}
{{- range .Values.agent.namespaces }}
{{- if or (hasPrefix "kube-" .) (has . (list "default" "pipeops" $.Release.Namespace)) }}
{{- fail (printf "agent.namespaces: %s belongs to Kubernetes or to the agent itself (fix: name namespaces of your own)" .) }}
{{- end }}
{{- end }}
{{- end }}
