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
{{- with .Values.agent.fetchAddresses }}
PIPEOPS_FETCH_ADDRESSES: {{ join "," . | quote }}
{{- end }}
{{- with .Values.proxy.https }}
HTTPS_PROXY: {{ . | quote }}
{{- end }}
{{- with .Values.selfUpdate }}
{{- if .enabled }}
PIPEOPS_SELF_UPDATE: "true"
PIPEOPS_UPDATE_WINDOW: {{ .window | quote }}
PIPEOPS_UPDATE_KEYS: {{ join "," .keys | quote }}
PIPEOPS_UPDATE_SIGNATURES: {{ .signatures | quote }}
PIPEOPS_UPDATE_DEADLINE: {{ .deadline | quote }}
{{- end }}
{{- end }}
{{- if .Values.metrics.enabled }}
PIPEOPS_METRICS_ADDRESS: ":9090"
{{- end }}
{{- if or .Values.customCA.pem .Values.customCA.existingConfigMap }}
PIPEOPS_CA_FILE: /etc/pipeops/ca/ca.crt
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

{{- define "pipeops-agent.componentLabels" -}}
app.kubernetes.io/name: metrics-server
app.kubernetes.io/part-of: pipeops-agent
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /*
Whether the release has a metrics-server: "ours", "theirs" (the cluster has a metrics API of
another origin), "off", or "assumed" (there is no cluster to ask). What Helm notes on the objects
of a release tells an upgrade that the metrics API came with it.
*/ -}}
{{- define "pipeops-agent.metricsServer" -}}
{{- $install := .Values.components.metricsServer.install -}}
{{- if or (not .Values.agent.autoInstallComponents) (eq $install "never") -}}
off
{{- else if eq $install "always" -}}
ours
{{- else if not (lookup "v1" "Namespace" "" "kube-system") -}}
assumed
{{- else -}}
{{- $api := lookup "apiregistration.k8s.io/v1" "APIService" "" "v1beta1.metrics.k8s.io" -}}
{{- if not $api -}}
ours
{{- else -}}
{{- $notes := $api.metadata.annotations | default dict -}}
{{- if and (eq (get $notes "meta.helm.sh/release-name") .Release.Name) (eq (get $notes "meta.helm.sh/release-namespace") .Release.Namespace) -}}
{{- if ne (printf "%s/%s" $api.spec.service.namespace $api.spec.service.name) (printf "%s/metrics-server" .Release.Namespace) -}}
{{- fail (printf "agent.autoInstallComponents: the metrics API came with this release, but %s/%s serves it now (fix: if that is to stay, run `kubectl annotate apiservice v1beta1.metrics.k8s.io meta.helm.sh/release-name- meta.helm.sh/release-namespace- helm.sh/resource-policy=keep`, and try again)" $api.spec.service.namespace $api.spec.service.name) -}}
{{- end -}}
ours
{{- else -}}
theirs
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
