{{/* Labels of the objects of this chart. */}}
{{- define "gpu-operator.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
helm.sh/chart: {{ include "gpu-operator.chart" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- with .Chart.AppVersion }}
app.kubernetes.io/version: {{ . | quote }}
{{- end }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.operator.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "gpu-operator.chart" -}}
{{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* What the operator's Deployment selects. */}}
{{- define "gpu-operator.selector" -}}
app: gpu-operator
app.kubernetes.io/component: gpu-operator
{{- end }}

{{/*
The keys of a values block that the custom resource has, as they are given: dict "block" "keys" (a list). What is empty (null, "", [], {}) is left out, false and 0 are not.
*/}}
{{- define "gpu-operator.pick" -}}
{{- $out := dict -}}
{{- $block := .block -}}
{{- range $key := .keys -}}
{{/* hostNetwork=false is the same as nothing said, and older policies have nothing there. */}}
{{- if and (hasKey $block $key) (not (and (eq $key "hostNetwork") (not (index $block $key)))) -}}
{{- $value := index $block $key -}}
{{- if and (eq $key "version") (not (kindIs "invalid" $value)) -}}
{{- $value = toString $value -}}
{{- end -}}
{{- if or (kindIs "bool" $value) (kindIs "float64" $value) (kindIs "int64" $value) (kindIs "int" $value) $value -}}
{{- $_ := set $out $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $out -}}
{{- end }}

{{/* What nearly every operand's block has. */}}
{{- define "gpu-operator.operandKeys" -}}
enabled,repository,image,version,imagePullPolicy,imagePullSecrets,resources,args,env,hostNetwork
{{- end }}

{{/*
One operand: dict "block" "root" "more" (further keys, comma-separated; optional) "without" (optional) "own" (the key of a
block of files/images.yaml, whose image is found there; optional).
*/}}
{{- define "gpu-operator.operand" -}}
{{- $keys := splitList "," (include "gpu-operator.operandKeys" .) -}}
{{- if .more -}}{{- $keys = concat $keys (splitList "," .more) -}}{{- end -}}
{{- if .without -}}{{- range splitList "," .without -}}{{- $keys = without $keys . -}}{{- end -}}{{- end -}}
{{- $block := .block -}}
{{- if .own -}}
{{- $image := fromJson (include "gpu-operator.ownImage" (dict "key" .own "root" .root)) -}}
{{- $block = merge (omit $image "instead") (omit $block "repository" "image" "version") -}}
{{- end -}}
{{- include "gpu-operator.pick" (dict "block" $block "keys" $keys) -}}
{{- end }}

{{/* The driver manager of a block: dict "block" "root" "own". */}}
{{- define "gpu-operator.driverManager" -}}
{{- $without := "enabled,resources,args,hostNetwork" -}}
{{- include "gpu-operator.operand" (dict "block" .block "root" .root "own" .own "without" $without) -}}
{{- end }}

{{/* The upgrade policy: the custom resource names podDeletion what the values name gpuPodDeletion. Empty strings go. */}}
{{- define "gpu-operator.upgradePolicy" -}}
{{- $out := dict -}}
{{- range $key, $value := . -}}
{{- if and (kindIs "map" $value) -}}
{{- $inner := dict -}}
{{- range $name, $part := $value -}}
{{- if not (or (kindIs "invalid" $part) (and (kindIs "string" $part) (eq $part ""))) -}}{{- $_ := set $inner $name $part -}}{{- end -}}
{{- end -}}
{{- $_ := set $out (ternary "podDeletion" $key (eq $key "gpuPodDeletion")) $inner -}}
{{- else if not (kindIs "invalid" $value) -}}
{{/* A number or a percentage: 0 means none at a time, and stays. */}}
{{- if eq $key "maxUnavailable" -}}
{{- $_ := set $out $key (ternary $value (int $value) (kindIs "string" $value)) -}}
{{- else -}}
{{- $_ := set $out $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $out -}}
{{- end }}

{{/* Names of the sub-chart's objects, which its own templates derive alike. */}}
{{- define "gpu-operator.nfdFullname" -}}
{{- $nfd := index .Values "node-feature-discovery" -}}
{{- if $nfd.fullnameOverride -}}
{{ $nfd.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else -}}
{{- $name := default "node-feature-discovery" $nfd.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* operator.tolerations, and the taints that the operator itself puts on GPU nodes: where there are no other nodes, it has
to run on them to take the startup taint off. */}}
{{- define "gpu-operator.tolerations" -}}
{{- $keys := list "nvidia.com/gpu.not-ready" }}
{{- range list ((.Values.fleet).startupTaint) ((.Values.fleet).dedicatedTaint) }}
{{- if (.).enabled }}
{{- $keys = append $keys .key | uniq }}
{{- end }}
{{- end -}}
tolerations:
{{- with .Values.operator.tolerations }}
{{- toYaml . | nindent 2 }}
{{- end }}
{{- range $keys }}
  - key: {{ . }}
    operator: Exists
    effect: NoSchedule
{{- end }}
{{- end }}

{{/* What the hook Jobs' pods share: dict "root" "args". */}}
{{- define "gpu-operator.hookPod" -}}
{{- $o := .root.Values.operator -}}
restartPolicy: OnFailure
serviceAccountName: {{ .account }}
{{- with $o.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with $o.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- include "gpu-operator.tolerations" .root | nindent 0 }}
containers:
  - name: {{ .name }}
    image: {{ include "gpu-operator.image" (dict "key" "operator" "root" .root) }}
    imagePullPolicy: {{ $o.imagePullPolicy | default "IfNotPresent" }}
    command: [gpu-operator]
    args: {{ toYaml .args | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      capabilities:
        drop: [ALL]
      readOnlyRootFilesystem: true
{{- end }}

{{/* dcgmExporter.config.data: the text itself, or a map with the key dcgm-metrics.csv. */}}
{{- define "gpu-operator.metricsCsv" -}}
{{- if kindIs "map" . -}}{{ index . "dcgm-metrics.csv" }}{{- else -}}{{ . }}{{- end -}}
{{- end }}

{{/*
Arguments that name the files of the definitions that a release brings up to date, and takes away where
operator.cleanupCRD says so; those of node feature discovery only where it is the release's own.
*/}}
{{- define "gpu-operator.definitions" -}}
{{- range list "clusterpolicies" "gpuclusters" "nvidiadrivers" }}
- --filepath=/opt/gpu-operator/crds/nvidia.com_{{ . }}.yaml
{{- end }}
{{- if .Values.nfd.enabled }}
{{- range list "nodefeaturegroups" "nodefeaturerules" "nodefeatures" }}
- --filepath=/opt/gpu-operator/crds/nfd.k8s-sigs.io_{{ . }}.yaml
{{- end }}
{{- end }}
{{- end }}

{{/* The same of kinds that are the DRA driver's, which may be there without us: never taken away. */}}
{{- define "gpu-operator.driverDefinitions" -}}
{{- range list "computedomaincliques" "computedomains" }}
- --filepath=/opt/gpu-operator/crds/resource.nvidia.com_{{ . }}.yaml
{{- end }}
{{- end }}
