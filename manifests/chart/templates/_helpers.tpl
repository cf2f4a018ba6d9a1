{{/* One name for all: a second Lease would let two controllers act. */}}
{{- define "name" -}}
taint-eviction-controller
{{- end }}

{{/* Of what has no namespace: another installation must keep its rights when this one is deleted. */}}
{{- define "clusterName" -}}
{{ .Release.Namespace }}:{{ include "name" . }}
{{- end }}

{{- define "selector" -}}
app.kubernetes.io/name: {{ include "name" . }}
app.kubernetes.io/instance: {{ include "name" . }}
{{- end }}

{{- define "image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* The flags of a group of values, as a list. False is the other half of a pair, the word off unquoted, or nothing. */}}
{{- define "flags" -}}
{{- $pairs := list "event-reasons" }}
{{- range $group := list "breaker" "adoption" }}
{{- $values := index $.Values $group }}
{{- if and (not $values.enabled) (omit $values "enabled") }}
{{- fail (printf "%s.%s has no effect without %s.enabled=true" $group (omit $values "enabled" | keys | sortAlpha | first) $group) }}
{{- end }}
{{- end }}
{{- range $group, $prefix := dict "breaker" "breaker-" "adoption" "adopt-" "process" "" "evicting" "" "limits" "" "watching" "" "election" "" "records" "" }}
{{- range $key, $value := index $.Values $group }}
{{- $flag := ternary (trimSuffix "-" $prefix) (printf "%s%s" $prefix (kebabcase $key)) (eq $key "enabled") }}
{{- if not (kindIs "bool" $value) }}
- {{ printf "--%s=%s" $flag (kindIs "string" $value | ternary $value (toJson $value)) | quote }}
{{- else if $value }}
- --{{ $flag }}
{{- else if has $flag $pairs }}
- --no-{{ $flag }}
{{- else if eq $flag "breaker-zone" }}
- --breaker-zone=off
{{- end }}
{{- end }}
{{- end }}
{{- end }}
