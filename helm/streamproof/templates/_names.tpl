{{- define "streamproof.name" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else if contains "streamproof" .Release.Name -}}
{{ .Release.Name | trunc 42 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-streamproof" (.Release.Name | trunc 30 | trimSuffix "-") }}
{{- end -}}
{{- end -}}

{{/* Labels by which one component's pods are selected: (list . "sidecar") */}}
{{- define "streamproof.selector" -}}
app.kubernetes.io/name: streamproof
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "streamproof.labels" -}}
{{ include "streamproof.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ (index . 0).Chart.Name }}-{{ (index . 0).Chart.Version }}
{{- end -}}

{{- define "streamproof.account" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "streamproof.name" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{- define "streamproof.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "streamproof.claim" -}}
{{ .Values.persistence.existingClaim | default (printf "%s-state" (include "streamproof.name" .)) }}
{{- end -}}
