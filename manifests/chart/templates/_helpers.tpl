{{/* One name for all objects, the Lease included. The alerts know a dry run by its suffix. */}}
{{- define "name" -}}
{{- $name := .Values.nameOverride | default (.Values.dryRun | ternary "taint-eviction-controller-dry-run" "taint-eviction-controller") }}
{{- if ne .Values.dryRun (regexMatch "taint-eviction-controller(-.+)?-dry-run(-.+)?$" $name) }}
{{- fail (printf "nameOverride=%s: the name of a dry run, and of nothing else, has -dry-run after taint-eviction-controller" $name) }}
{{- end }}
{{- if and .Values.dryRun .Values.adoption.enabled }}
{{- fail "adoption.enabled has no effect with dryRun=true, which has no right to change pods" }}
{{- end }}
{{- $name }}
{{- end }}

{{/* Of what has no namespace: another installation must keep its rights when this one is deleted. */}}
{{- define "clusterName" -}}
{{ .Release.Namespace }}:{{ include "name" . }}
{{- end }}

{{- define "selector" -}}
app.kubernetes.io/name: taint-eviction-controller
app.kubernetes.io/instance: {{ include "name" . }}
{{- end }}

{{- define "policyName" -}}
{{ include "name" . | replace "taint-eviction-controller" "taint-eviction-policy" }}
{{- end }}

{{- define "image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* The flags of a group of values, as a list. False is the other half of a pair, the word off unquoted, or nothing. */}}
{{- define "flags" -}}
{{- $pairs := list "event-reasons" "keep-history" }}
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
