{{- define "pipeops-agent.labels" -}}
app.kubernetes.io/name: pipeops-agent
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Of the Deployment and what belongs to it. Pods keep their label: doctor and others find them by it. */ -}}
{{- define "pipeops-agent.name" -}}
{{- .Values.fullnameOverride | default .Values.nameOverride | default "pipeops-agent" }}
{{- end }}

{{- define "pipeops-agent.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "pipeops-agent.name" .) }}
{{- end }}

{{- /* What the agent reads from its environment and is not a secret. */ -}}
{{- define "pipeops-agent.settings" -}}
PIPEOPS_CONTROL_PLANE_URL: {{ .Values.agent.controlPlaneUrl | quote }}
CLUSTER_NAME: {{ .Values.agent.clusterName | quote }}
LOG_LEVEL: {{ .Values.agent.logLevel | quote }}
ENABLE_INGRESS_SYNC: {{ .Values.agent.enableIngressSync | quote }}
{{- with .Values.agent.namespaces }}
PIPEOPS_NAMESPACES: {{ join "," . | quote }}
{{- end }}
PIPEOPS_FIRST_NAMESPACES: {{ join "," .Values.agent.firstNamespaces | default "none" | quote }}
{{- with .Values.agent.fetchAddresses }}
PIPEOPS_FETCH_ADDRESSES: {{ join "," . | quote }}
{{- end }}
{{- with .Values.agent.directAddresses }}
PIPEOPS_DIRECT_ADDRESSES: {{ join "," . | quote }}
{{- end }}
{{- with .Values.agent.chartHttpHosts }}
PIPEOPS_CHART_HTTP_HOSTS: {{ join "," . | quote }}
{{- end }}
PIPEOPS_STABILIZATION: {{ .Values.agent.stabilization | quote }}
PIPEOPS_KUBERNETES_STREAMS: {{ .Values.agent.kubernetesStreams | quote }}
{{- with .Values.agent.k3sUrl }}
K3S_URL: {{ . | quote }}
{{- end }}
{{- with .Values.builds.image }}
PIPEOPS_BUILD_IMAGE: {{ . | quote }}
{{- end }}
{{- with .Values.builds.toolsImage }}
PIPEOPS_BUILD_TOOLS_IMAGE: {{ . | quote }}
{{- end }}
{{- with include "pipeops-agent.serviceAccount" . }}
{{- if ne . "pipeops-agent" }}
PIPEOPS_SERVICE_ACCOUNT: {{ . | quote }}
{{- end }}
{{- end }}
{{- with .Values.proxy.https }}
HTTPS_PROXY: {{ . | quote }}
{{- end }}
{{- with .Values.selfUpdate }}
{{- if .enabled }}
PIPEOPS_SELF_UPDATE: "true"
PIPEOPS_UPDATE_WINDOW: {{ .window | quote }}
PIPEOPS_UPDATE_KEYS: {{ join "," .keys | quote }}
{{- with .mirror }}
PIPEOPS_UPDATE_MIRROR: {{ . | quote }}
{{- end }}
PIPEOPS_UPDATE_SIGNATURES: {{ .signatures | quote }}
PIPEOPS_UPDATE_DEADLINE: {{ .deadline | quote }}
{{- end }}
{{- end }}
{{- if or .Values.customCA.pem .Values.customCA.existingConfigMap }}
PIPEOPS_CA_FILE: /etc/pipeops/ca/ca.crt
{{- end }}
{{- end }}

{{- /* auto or true; empty if the agent has no port of metrics. */ -}}
{{- define "pipeops-agent.metrics" -}}
{{- with .Values.metrics }}
{{- if ne (toString .enabled) "false" }}{{ or .podMonitor.enabled .serviceMonitor.enabled | ternary true .enabled }}{{ end }}
{{- end }}
{{- end }}

{{- /* What the schema cannot say. Every message names the value and the way out. */ -}}
{{- define "pipeops-agent.check" -}}
{{- if and .Values.agent.token .Values.agent.existingSecret }}
{{- fail "agent.token, agent.existingSecret: both are set (fix: set one; existingSecret keeps the token out of the release)" }}
{{- end }}
{{- if and .Values.proxy.https .Values.proxy.existingSecret }}
{{- fail "proxy.https, proxy.existingSecret: both are set (fix: set one)" }}
{{- end }}
{{- if and .Values.selfUpdate.enabled (ne (include "pipeops-agent.name" .) "pipeops-agent") }}
{{- fail "selfUpdate.enabled, fullnameOverride: both are set (fix: set one; the right to update is for the Deployment pipeops-agent)" }}
{{- end }}
{{- if and .Values.selfUpdate.keys (gt (int .Values.selfUpdate.signatures) (len .Values.selfUpdate.keys)) }}
{{- fail (printf "selfUpdate.signatures: %d are more than the %d keys of selfUpdate.keys can make (fix: name more keys, or ask for fewer signatures)" (int .Values.selfUpdate.signatures) (len .Values.selfUpdate.keys)) }}
{{- end }}
{{- if and .Values.customCA.pem .Values.customCA.existingConfigMap }}
{{- fail "customCA.pem, customCA.existingConfigMap: both are set (fix: set one)" }}
{{- end }}
{{- range .Values.agent.namespaces }}
{{- if or (hasPrefix "kube-" .) (has . (list "default" "pipeops" $.Release.Namespace)) }}
{{- fail (printf "agent.namespaces: %s belongs to Kubernetes or to the agent itself (fix: name namespaces of your own)" .) }}
{{- end }}
{{- end }}
{{- if and .Values.nodes.enabled .Values.agent.namespaces }}
{{- fail "nodes.enabled, agent.namespaces: both are set (fix: set one; nodes and their pods are the whole cluster's)" }}
{{- end }}
{{- if .Values.manifests.enabled }}
{{- if not (or .Values.manifests.namespaces .Values.agent.namespaces) }}
{{- fail "manifests.namespaces: none is named (fix: name the namespaces in which the rights are to hold)" }}
{{- end }}
{{- if and .Values.manifests.cluster .Values.agent.namespaces }}
{{- fail "manifests.cluster, agent.namespaces: both are set (fix: set one; definitions are the whole cluster's)" }}
{{- end }}
{{- range .Values.manifests.namespaces }}
{{- if or (hasPrefix "kube-" .) (has . (list "default" "pipeops" $.Release.Namespace)) }}
{{- fail (printf "manifests.namespaces: %s belongs to Kubernetes or to the agent itself (fix: name namespaces of your own)" .) }}
{{- end }}
{{- if and $.Values.agent.namespaces (not (has . $.Values.agent.namespaces)) }}
{{- fail (printf "manifests.namespaces: %s is not among agent.namespaces (fix: name it there too)" .) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "pipeops-agent.componentsLabels" -}}
app.kubernetes.io/name: pipeops-components
app.kubernetes.io/part-of: pipeops-agent
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* What installs components is there for as long as its Job. */ -}}
{{- define "pipeops-agent.componentsHook" -}}
helm.sh/hook: post-install,post-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
{{- end }}

{{- /* How charts are downloaded: through the agent's proxy, and by its CA too. */ -}}
{{- define "pipeops-agent.componentsEnv" -}}
{{- if not .Values.proxy.https }}
- name: HTTPS_PROXY
  valueFrom:
    secretKeyRef:
      name: {{ .Values.proxy.existingSecret | default "pipeops-agent-proxy" }}
      key: HTTPS_PROXY
      optional: {{ empty .Values.proxy.existingSecret }}
{{- end }}
{{- if or .Values.proxy.https .Values.proxy.existingSecret }}
- name: NO_PROXY
  value: {{ join "," (append .Values.proxy.noProxy "$(KUBERNETES_SERVICE_HOST)") | quote }}
{{- end }}
{{- if or .Values.customCA.pem .Values.customCA.existingConfigMap }}
- name: SSL_CERT_DIR # in addition to the image's roots
  value: /etc/pipeops/ca
{{- end }}
{{- end }}
