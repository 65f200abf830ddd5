{{- define "streamproof.pod-security" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "streamproof.container-security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Environment of a container: what is writable, and the Secrets: (list . SECRETS) */}}
{{- define "streamproof.env" -}}
- {name: HOME, value: /tmp}
- {name: XDG_CACHE_HOME, value: /tmp/cache}
{{- range $name, $from := (index . 1).env }}
- name: {{ $name | quote }}
  valueFrom:
    secretKeyRef: {name: {{ $from.secret | quote }}, key: {{ $from.key | quote }}}
{{- end }}
{{- end -}}

{{/* The folder of a configuration: its ConfigMap, and files of Secrets beside it: (list CONFIGMAP SECRETS) */}}
{{- define "streamproof.config-volume" -}}
name: config
projected:
  defaultMode: 0440
  sources:
    - configMap: {name: {{ index . 0 }}}
    {{- range $path, $from := (index . 1).files }}
    - secret:
        name: {{ $from.secret | quote }}
        items: [{key: {{ $from.key | quote }}, path: {{ $path | quote }}}]
    {{- end }}
{{- end -}}

{{/* What every pod of the chart has. */}}
{{- define "streamproof.pod" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext: {{- include "streamproof.pod-security" . | nindent 2 }}
{{- end -}}
