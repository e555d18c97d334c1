{{/*
The image of a block of files/images.yaml, as JSON with repository, image, version (what is empty is left out) and, where
upstream's names stood for ours, "instead": the last part of the key that named it. dict "key" "root".
*/}}
{{- define "gpu-operator.ownImage" -}}
{{- $app := .root.Chart.AppVersion -}}
{{- $key := .key -}}
{{- $block := .root.Values -}}
{{- range splitList "." .key -}}{{- $block = default dict (index $block .) -}}{{- end -}}
{{- $r := toString (default "" $block.repository) -}}
{{- $i := toString (default "" $block.image) -}}
{{- $v := toString (default "" $block.version) -}}
{{- $upstream := dict -}}
{{- range fromYamlArray (.root.Files.Get "files/images.yaml") -}}{{- if eq .key $key -}}{{- $upstream = . -}}{{- end -}}{{- end -}}
{{- $public := hasPrefix "nvcr.io/" $r -}}
{{- $instead := "" -}}
{{- if and (not $r) (not $v) (regexMatch "[/:@]" $i) -}}
{{- toJson (dict "image" $i) -}}
{{- else -}}
{{- if $upstream.own -}}
{{- if or (eq $key "operator") (not (and $r $i $v)) -}}
{{- if regexMatch "^v?(1|2[0-9])\\.[0-9]" $v -}}{{- $v = "" -}}{{- $instead = "version" -}}{{- end -}}
{{- if eq $i "gpu-operator-validator" -}}{{- $i = "" -}}{{- $instead = "image" -}}{{- end -}}
{{- if $public -}}{{- $r = "" -}}{{- $v = "" -}}{{- $instead = "repository" -}}{{- end -}}
{{- end -}}
{{- else if and (ne $i "gpu-operator") (not (hasPrefix "ghcr.io/gpu-operator" $r)) (or $public $i (and $v (ne $v $app))) -}}
{{- if and $upstream.gone (eq $i $upstream.gone) (not $v) -}}
{{- $i = "" -}}{{- $instead = "image" -}}
{{- if $public -}}{{- $r = "" -}}{{- end -}}
{{- else -}}
{{- $r = default $upstream.repository $r -}}
{{- $i = default $upstream.image $i -}}
{{- $v = default $upstream.version $v -}}
{{- end -}}
{{- end -}}
{{- $out := dict -}}
{{/* What nobody named, or named in vain, is the operator's own image, which the cluster has. */}}
{{- if and (ne $key "operator") (or $instead (not (or $r $i $v))) -}}
{{- $out = omit (fromJson (include "gpu-operator.ownImage" (dict "key" "operator" "root" .root))) "instead" -}}
{{- else -}}
{{- $out = dict "repository" (default "ghcr.io/gpu-operator" $r) "image" (default "gpu-operator" $i) "version" (default $app $v) -}}
{{- end -}}
{{- if and $instead (or (not (hasKey $block "enabled")) $block.enabled) -}}{{- $_ := set $out "instead" $instead -}}{{- end -}}
{{- toJson $out -}}
{{- end -}}
{{- end }}

{{/* REPOSITORY/IMAGE:VERSION of such a block. dict "key" "root". */}}
{{- define "gpu-operator.image" -}}
{{- include "gpu-operator.reference" (fromJson (include "gpu-operator.ownImage" .)) -}}
{{- end }}

{{/*
The reference of a block with repository, image and version, or an image alone, as the operator itself reads it from a
policy. Empty where a part is missing.
*/}}
{{- define "gpu-operator.reference" -}}
{{- $version := toString (default "" .version) -}}
{{- if and .repository .image $version -}}
{{ printf "%s/%s%s%s" .repository .image (ternary "@" ":" (hasPrefix "sha256:" $version)) $version }}
{{- else if and .image (not .repository) (not $version) (regexMatch "[/:@]" .image) -}}
{{ .image }}
{{- end -}}
{{- end }}

{{/* Adds to out.list what is said where upstream's names stood for ours. dict "root" "out". */}}
{{- define "gpu-operator.imageNotes" -}}
{{- $root := .root -}}
{{- $out := .out -}}
{{- range fromYamlArray (.root.Files.Get "files/images.yaml") -}}
{{- $image := fromJson (include "gpu-operator.ownImage" (dict "key" .key "root" $root)) -}}
{{- if $image.instead -}}
{{- $block := index $root.Values .key -}}
{{- $line := printf "%s.%s (%v): names upstream's program, which cannot serve this chart; %s runs in its place. Instead: leave repository, image and version out, or name a copy of that image" .key $image.instead (index $block $image.instead) (include "gpu-operator.image" (dict "key" .key "root" $root)) -}}
{{- $_ := set $out "list" (append $out.list $line) -}}
{{- end -}}
{{- end -}}
{{- end }}
