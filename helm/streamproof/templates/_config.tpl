{{/* The row of the sizing table, as YAML. */}}
{{- define "streamproof.size" -}}
{{ get (.Files.Get "files/sizes.yaml" | fromYaml) .Values.size | toYaml }}
{{- end -}}

{{- define "streamproof.master" -}}
{{ dig "spark" "master" "" .Values.config | default (printf "local[%v]" (include "streamproof.size" . | fromYaml).cores) }}
{{- end -}}

{{- define "streamproof.on-kubernetes" -}}
{{ hasPrefix "k8s://" (include "streamproof.master" .) | ternary "true" "" }}
{{- end -}}

{{- define "streamproof.scheme" -}}
{{ dig "metrics" "tls_server_config" (dict) .Values.config | empty | ternary "HTTP" "HTTPS" }}
{{- end -}}

{{/* True where Spark's executors are other pods or hosts, which connect to the sidecar. */}}
{{- define "streamproof.on-cluster" -}}
{{ hasPrefix "local" (include "streamproof.master" .) | ternary "" "true" }}
{{- end -}}

{{/* Fails where an option whose name says that it is secret has its value here: (list . "config.kafka.options" OPTIONS) */}}
{{- define "streamproof.no-secrets" -}}
{{- $names := (index . 0).Files.Get "files/secrets.json" | fromJson -}}
{{- $place := index . 1 -}}
{{- $secrets := hasPrefix "faultRunner." $place | ternary "faultRunner.secrets" "secrets" -}}
{{- range $option, $value := index . 2 -}}
{{- $secret := false -}}
{{- range $names.words }}{{ if contains . (lower $option) }}{{ $secret = true }}{{ end }}{{ end -}}
{{- if or (has $option $names.paths) (hasSuffix ".url" $option) (hasSuffix "_file" $option) }}{{ $secret = false }}{{ end -}}
{{- /* As in the sidecar, $${ is a plain ${, and a reference is ${NAME} or ${file:PATH}. */ -}}
{{- $text := toString $value | replace "$${" " " -}}
{{- $refers := regexMatch "\\$\\{([A-Za-z_][A-Za-z0-9_]*|file:[^}]+)\\}" $text -}}
{{- if and $secret (not (kindIs "invalid" $value)) (not $refers) (not (has $text (list "true" "false"))) -}}
{{- fail (printf "%s: %s has its value in the values, where everybody who may read the release sees it; write ${NAME} there and name the Secret as %s.env.NAME." $place $option $secrets) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Fails where a text refers to ${NAME} and NAME comes from no Secret: (list "config" TEXT ENV) */}}
{{- define "streamproof.references" -}}
{{- $place := index . 0 -}}
{{- $env := index . 2 -}}
{{- $text := index . 1 | replace "$${" "" -}}
{{- range regexFindAll "\\$\\{[A-Za-z_][A-Za-z0-9_]*\\}" $text -1 -}}
{{- $name := . | trimPrefix "${" | trimSuffix "}" -}}
{{- if not (hasKey $env $name) -}}
{{- fail (printf "%s refers to %s, and no Secret has it; add %s.env.%s: {secret: NAME, key: KEY}." $place . (eq $place "config" | ternary "secrets" "faultRunner.secrets") $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Fails where a setting names a file beside the configuration, and the file comes from no Secret; also where a Secret
hides the configuration itself: (list . "config" CONFIG FILES) */}}
{{- define "streamproof.named-files" -}}
{{- $place := index . 1 -}}
{{- $config := index . 2 -}}
{{- $files := index . 3 -}}
{{- $secrets := eq $place "config" | ternary "secrets" "faultRunner.secrets" -}}
{{- range list "pipeline.yaml" "executor.yaml" "faults.yaml" -}}
{{- if hasKey $files . }}{{ fail (printf "%s.files.%s: the chart writes this file; give the Secret's file another name." $secrets .) }}{{ end -}}
{{- end -}}
{{- $named := dict -}}
{{- $options := dig "kafka" "options" (dict) $config | default dict -}}
{{- range ((index . 0).Files.Get "files/secrets.json" | fromJson).paths -}}
{{- if hasKey $options . }}{{ $_ := set $named (printf "kafka.options.%s" .) (get $options .) }}{{ end -}}
{{- end -}}
{{- range $section, $settings := dict "tls_server_config" (list "cert_file" "key_file") "authorization" (list "credentials_file") -}}
{{- $given := dig "metrics" $section (dict) $config | default dict -}}
{{- range $settings -}}
{{- if hasKey $given . }}{{ $_ := set $named (printf "metrics.%s.%s" $section .) (get $given .) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- range $setting, $path := $named -}}
{{- $name := toString $path | trimPrefix "/etc/streamproof/" | trimPrefix "./" -}}
{{- if not (or (not $path) (hasPrefix "/" $name) (contains "${" $name) (hasKey $files $name)) -}}
{{- fail (printf "%s.%s names the file %s, and no Secret has it; add %s.files.%s: {secret: NAME, key: KEY}." $place $setting $name $secrets $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The configuration file, as JSON, which is YAML in which numbers stay as they are. */}}
{{- define "streamproof.config" -}}
{{- $size := include "streamproof.size" . | fromYaml -}}
{{- $name := include "streamproof.name" . -}}
{{- $config := deepCopy .Values.config -}}
{{- include "streamproof.no-secrets" (list . "config.kafka.options" (dig "kafka" "options" (dict) $config)) -}}
{{- include "streamproof.no-secrets" (list . "config.spark.options" (dig "spark" "options" (dict) $config)) -}}
{{- include "streamproof.no-secrets" (list . "config.metrics.authorization" (dig "metrics" "authorization" (dict) $config)) -}}
{{- $at := printf "%s.%s" $name .Release.Namespace -}}
{{- $hosts := list $name $at (printf "%s.svc" $at) (printf "%s.svc.cluster.local" $at) -}}
{{- $hosts = concat $hosts (dig "metrics" "allowed_hosts" (list) $config) | uniq -}}
{{- $own := dict "state" (dict "path" "/var/lib/streamproof/state") "metrics" (dict "address" "0.0.0.0" "port" 9464 "allowed_hosts" $hosts) -}}
{{- $defaults := dict "spark" (dict "master" (include "streamproof.master" .)) "limits" (dict "worker_bytes" (int64 $size.worker_bytes)) -}}
{{- if include "streamproof.on-cluster" . -}}
{{- $options := dict
  "spark.driver.host" (printf "%s.%s.svc" $name .Release.Namespace)
  "spark.driver.bindAddress" "0.0.0.0"
  "spark.driver.port" "7078"
  "spark.blockManager.port" "7079" -}}
{{- if include "streamproof.on-kubernetes" . -}}
{{- if not .Values.executors.image -}}
{{- fail "executors.image is empty; name an image with the sidecar's versions of Spark and Python, which the executors of config.spark.master k8s:// run." -}}
{{- end -}}
{{- $options = mustMerge $options (dict
  "spark.kubernetes.namespace" .Release.Namespace
  "spark.kubernetes.driver.pod.name" (printf "%s-0" $name)
  "spark.kubernetes.executor.podNamePrefix" $name
  "spark.kubernetes.executor.podTemplateFile" "/etc/streamproof/executor.yaml"
  "spark.kubernetes.container.image" .Values.executors.image
  "spark.kubernetes.container.image.pullPolicy" .Values.image.pullPolicy
  "spark.executor.instances" (toString .Values.executors.instances)
  "spark.executor.cores" (toString .Values.executors.cores)
  "spark.executor.memory" .Values.executors.memory
  "spark.executor.memoryOverhead" .Values.executors.memoryOverhead
  "spark.authenticate" "true"
  "spark.network.crypto.enabled" "true") -}}
{{- end -}}
{{- $defaults = mustMerge (dict "spark" (dict "options" $options)) $defaults -}}
{{- end -}}
{{- $text := mustMergeOverwrite (mustMerge $config $defaults) $own | mustToPrettyJson -}}
{{- include "streamproof.references" (list "config" $text .Values.secrets.env) -}}
{{- include "streamproof.named-files" (list . "config" $config .Values.secrets.files) -}}
{{ $text }}
{{- end -}}
