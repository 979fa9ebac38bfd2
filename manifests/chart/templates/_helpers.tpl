{{/* Templates read the files of the kustomizations through the links in files/. Only objects that depend on values are templates. */}}

{{/* Labels of all objects: the kustomizations' label and Helm's standard labels. */}}
{{- define "tf-job-operator.labels" -}}
app.kubernetes.io/name: tfjob-operator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The operator's image. It has no default: there is no public image, and a name without a registry refers to Docker Hub. */}}
{{- define "tf-job-operator.image" -}}
{{- $repository := required "image.repository is required, for example --set image.repository=registry.example.com/team/tfjob-operator (docs/install.md says how to build the image). helm upgrade drops the release's values unless called with --reset-then-reuse-values, or with --reuse-values and the same chart" .Values.image.repository }}
{{- if regexMatch "[:@]" (base $repository) }}{{/* a colon before the last slash separates a port */}}
{{- fail (printf "image.repository: %s has a tag or digest: name the image without it, and set image.tag" $repository) }}
{{- end }}
{{- $tag := .Values.image.tag | default .Chart.AppVersion }}
{{- printf "%s%s%s" $repository (ternary "" ":" (hasPrefix "@" $tag)) $tag }}
{{- end }}

{{/* A duration in seconds, such as 90 for 1m30s. */}}
{{- define "tf-job-operator.seconds" -}}
{{- $sum := 0.0 }}
{{- range regexFindAll "[0-9.]+(ms|s|m|h)" . -1 }}
{{- $unit := regexFind "[a-z]+$" . }}
{{- $sum = addf $sum (mulf (trimSuffix $unit . | float64) (get (dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0) $unit)) }}
{{- end }}
{{- $sum }}
{{- end }}

{{/* A quantity of memory in bytes, such as 536870912 for 512Mi. */}}
{{- define "tf-job-operator.bytes" -}}
{{- $factors := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 }}
{{- $text := toString . }}
{{- $unit := regexFind "[A-Za-z]*$" $text }}
{{- if not (hasKey $factors $unit) }}{{ fail (printf "resources.limits.memory: %s is not a quantity such as 512Mi" $text) }}{{ end }}
{{- mulf (trimSuffix $unit $text | float64) (get $factors $unit) | int64 }}
{{- end }}

{{/* The text of a file of the kustomizations. Arguments: the root, the path below files/. */}}
{{- define "tf-job-operator.file" -}}
{{- $text := (index . 0).Files.Get (printf "files/%s" (index . 1)) }}
{{- if not $text }}
{{- fail (printf "files/%s is missing: the chart was copied without following its links; use `helm package`" (index . 1)) }}
{{- end }}
{{- $text }}
{{- end }}

{{/*
The objects of such a text, in the release's namespace and with the common labels.
Arguments: the root, the text, and additional labels.
*/}}
{{- define "tf-job-operator.objects" -}}
{{- $root := index . 0 }}
{{- $labels := merge (include "tf-job-operator.labels" $root | fromYaml) (index . 2) }}
{{- range $text := splitList "\n---\n" (index . 1) }}
{{- $object := fromYaml $text }}
{{- with $object.Error }}{{ fail . }}{{ end }}
{{- $meta := $object.metadata }}
{{- $_ := set $meta "labels" (merge (dict) $labels ($meta.labels | default dict)) }}
{{- if $meta.namespace }}{{ $_ := set $meta "namespace" $root.Release.Namespace }}{{ end }}
{{- range $object.subjects }}{{ $_ := set . "namespace" $root.Release.Namespace }}{{ end }}
---
{{ toYaml $object }}
{{ end }}
{{- end }}

{{/* The operator's flags, in addition to those of the kustomizations; flags at their default are omitted. */}}
{{- define "tf-job-operator.flags" -}}
{{- if .Values.namespaced }}
- --namespace=$(KUBEFLOW_NAMESPACE)
{{- end }}
{{- with join "," .Values.apis }}{{ if ne . "kubeflow.org/v1" }}
- --apis={{ . }}
{{- end }}{{ end }}
{{- if ne .Values.logLevel "info" }}
- --log-level={{ .Values.logLevel }}
{{- end }}
{{- if .Values.qps }}
- --qps={{ toYaml .Values.qps }}
- --burst={{ toYaml .Values.burst }}
{{- end }}
{{- with .Values.gangScheduling }}
{{- if .enabled }}
- --enable-gang-scheduling
{{- if ne .schedulerName "volcano" }}
- --gang-scheduler-name={{ .schedulerName }}
{{- end }}
{{- end }}
{{- end }}
{{- if ne .Values.tensorboardImage "tensorflow/tensorflow:2.20.0" }}
- --tensorboard-image={{ .Values.tensorboardImage }}
{{- end }}
{{- with join "," .Values.tensorboardServiceTypes }}{{ if ne . "ClusterIP,NodePort,LoadBalancer" }}
- --tensorboard-service-types={{ . }}
{{- end }}{{ end }}
{{- with .Values.leaderElection }}
{{- if not .enabled }}
- --leader-elect=false
{{- else }}
{{- $lease := include "tf-job-operator.seconds" .leaseDuration | float64 }}
{{- $renew := include "tf-job-operator.seconds" .renewDeadline | float64 }}
{{- if le $lease $renew }}
{{- fail (printf "leaderElection.leaseDuration: %s must be longer than leaderElection.renewDeadline, %s, or another replica leads while this one still retries" .leaseDuration .renewDeadline) }}
{{- end }}
{{- if le $renew (mulf 1.2 (include "tf-job-operator.seconds" .retryPeriod | float64)) }}
{{- fail (printf "leaderElection.renewDeadline: %s must be longer than 1.2 times leaderElection.retryPeriod, %s" .renewDeadline .retryPeriod) }}
{{- end }}
{{- if ne $lease (floor $lease) }}
{{- fail (printf "leaderElection.leaseDuration: %s must be a whole number of seconds" .leaseDuration) }}
{{- end }}
{{- if ne .leaseDuration "15s" }}
- --leader-elect-lease-duration={{ .leaseDuration }}
{{- end }}
{{- if ne .renewDeadline "10s" }}
- --leader-elect-renew-deadline={{ .renewDeadline }}
{{- end }}
{{- if ne .retryPeriod "2s" }}
- --leader-elect-retry-period={{ .retryPeriod }}
{{- end }}
{{- end }}
{{- end }}
{{- range .Values.extraArgs }}
- {{ toYaml . }}
{{- end }}
{{- end }}
