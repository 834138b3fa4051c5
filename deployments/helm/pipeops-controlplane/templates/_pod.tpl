{{- /* Both charts have this same file: a test compares them. Helm shares templates by a library chart
only, which each package would have to contain. */ -}}

{{- define "pipeops.image" -}}
{{- $repository := .Values.image.repository }}
{{- with .Values.global.imageRegistry }}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) (regexReplaceAll "^(localhost|[^/]*[.:][^/]*)/" $repository "") }}
{{- end }}
{{- with .Values.image }}
{{- $repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- /* Labels of every pod beside those that select it. */ -}}
{{- define "pipeops.podLabels" -}}
{{- with mergeOverwrite (dict) .Values.commonLabels .Values.podLabels }}{{ toYaml . }}{{ end }}
{{- end }}

{{- /* Where a pod runs, and by which names it finds others. */ -}}
{{- define "pipeops.pod" -}}
{{- range $key := list "imagePullSecrets" "priorityClassName" "nodeSelector" "tolerations" "affinity" "hostAliases" "dnsConfig" }}
{{- with index $.Values $key }}
{{ $key }}: {{ toJson . }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Variables of every container: those of traces, and the customer's, which come last and win. */ -}}
{{- define "pipeops.env" -}}
{{- with .Values.tracing }}
{{- if .endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ .endpoint | quote }}
{{- with .existingSecret }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: OTEL_EXPORTER_OTLP_HEADERS
{{- end }}
{{- range $name, $value := dict "OTEL_EXPORTER_OTLP_PROTOCOL" .protocol "OTEL_EXPORTER_OTLP_CERTIFICATE" .certificateFile "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE" .clientCertificateFile "OTEL_EXPORTER_OTLP_CLIENT_KEY" .clientKeyFile "OTEL_TRACES_SAMPLER" .sampler "OTEL_TRACES_SAMPLER_ARG" .samplerArg "OTEL_RESOURCE_ATTRIBUTES" .resourceAttributes }}
{{- with $value }}
- name: {{ $name }}
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* What a container reads beside the settings of the chart. */ -}}
{{- define "pipeops.envFrom" -}}
{{- with .Values.extraEnvFrom }}{{ toYaml . }}{{ end }}
{{- end }}

{{- /* A ServiceAccount that is the chart's own: a dict of top, name and labels. */ -}}
{{- define "pipeops.serviceAccount" -}}
{{- with .top.Values.serviceAccount }}
{{- if .create }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $.name }}
  namespace: {{ $.top.Release.Namespace }}
  labels:
    {{- $.labels | nindent 4 }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Objects for the Prometheus operator: a dict of top, kind, name, labels and selector. */ -}}
{{- define "pipeops.monitor" -}}
{{- $values := index .top.Values.metrics (ternary "podMonitor" "serviceMonitor" (eq .kind "PodMonitor")) -}}
apiVersion: monitoring.coreos.com/v1
kind: {{ .kind }}
metadata:
  name: {{ .name }}
  namespace: {{ .top.Release.Namespace }}
  labels:
    {{- mergeOverwrite (fromYaml .labels) $values.labels | toYaml | nindent 4 }}
spec:
  selector:
    matchLabels:
      {{- .selector | nindent 6 }}
  {{ ternary "podMetricsEndpoints" "endpoints" (eq .kind "PodMonitor") }}:
    - port: metrics
      path: /metrics
      {{- with $values.interval }}
      interval: {{ . }}
      {{- end }}
{{- end }}

{{- /* Warnings about values that weaken the pod, for NOTES.txt. */ -}}
{{- define "pipeops.weakened" -}}
{{- $pod := .Values.podSecurityContext }}
{{- $container := .Values.securityContext }}
{{- $found := list }}
{{- if not $pod.runAsNonRoot }}{{ $found = append $found "podSecurityContext.runAsNonRoot: the process may be root" }}{{ end }}
{{- if and (hasKey $pod "runAsUser") (eq (toString $pod.runAsUser) "0") }}{{ $found = append $found "podSecurityContext.runAsUser: the process is root" }}{{ end }}
{{- if ne (dig "seccompProfile" "type" "" $pod) "RuntimeDefault" }}{{ $found = append $found "podSecurityContext.seccompProfile: system calls are not those of RuntimeDefault" }}{{ end }}
{{- if ne (toString $container.allowPrivilegeEscalation) "false" }}{{ $found = append $found "securityContext.allowPrivilegeEscalation: the process may gain privileges" }}{{ end }}
{{- if not $container.readOnlyRootFilesystem }}{{ $found = append $found "securityContext.readOnlyRootFilesystem: the process may change its image's files" }}{{ end }}
{{- if not (has "ALL" (dig "capabilities" "drop" (list) $container)) }}{{ $found = append $found "securityContext.capabilities.drop: the process keeps capabilities" }}{{ end }}
{{- if dig "capabilities" "add" (list) $container }}{{ $found = append $found "securityContext.capabilities.add: the process has more capabilities" }}{{ end }}
{{- if $container.privileged }}{{ $found = append $found "securityContext.privileged: the process has all rights on its node" }}{{ end }}
{{- if or (eq (toString $container.runAsUser) "0") (eq (toString $container.runAsNonRoot) "false") }}{{ $found = append $found "securityContext.runAsUser: the process may be root" }}{{ end }}
{{- range .Values.extraVolumes }}
{{- if .hostPath }}{{ $found = append $found (printf "extraVolumes: %s is a folder of the node" .name) }}{{ end }}
{{- end }}
{{- if not .Values.networkPolicy.enabled }}{{ $found = append $found "networkPolicy.enabled: any pod may connect to every port" }}{{ end }}
{{- with $found }}

WARNING: these values weaken the pod (docs/production/hardening.md):
{{ range . }}
  {{ . }}
{{- end }}
{{- end }}
{{- end }}
