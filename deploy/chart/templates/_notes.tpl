{{/*
Adds to out.list a line for each key below values that known does not have, with what is known of it or the nearest name
beside it. dict "values" "path" "known" (key → true, from files/keys.txt) "foreign" (key → text, from files/foreign.yaml)
"out".
*/}}
{{- define "gpu-operator.unknownKeys" -}}
{{- $at := . -}}
{{- range $key, $value := .values -}}
{{- $path := ternary $key (printf "%s.%s" $at.path $key) (eq $at.path "") -}}
{{- if not (hasKey $at.known (printf "%s.*" $path)) -}}
{{- if hasKey $at.known $path -}}
{{- if kindIs "map" $value -}}
{{- include "gpu-operator.unknownKeys" (dict "values" $value "path" $path "known" $at.known "foreign" $at.foreign "out" $at.out) -}}
{{- end -}}
{{- else -}}
{{- $says := get $at.foreign $path -}}
{{- if and (not $says) $at.path -}}{{- $says = get $at.foreign (printf "*.%s" $key) -}}{{- end -}}
{{- $near := ternary "" (include "gpu-operator.nearestKey" (dict "path" $path "known" $at.known)) (ne $says "") -}}
{{- $line := ternary (printf "%s: %s" $path $says) (ternary $path (printf "%s (did you mean %s?)" $path $near) (eq $near "")) (ne $says "") -}}
{{- $_ := set $at.out "list" (append $at.out.list $line) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The pairs of neighbouring letters of a word, as keys of a JSON object; case does not count. */}}
{{- define "gpu-operator.pairs" -}}
{{- $letters := splitList "" (lower .) -}}
{{- $pairs := dict -}}
{{- range $i, $letter := $letters -}}
{{- if $i -}}{{- $_ := set $pairs (printf "%s%s" (index $letters (sub $i 1)) $letter) true -}}{{- end -}}
{{- end -}}
{{- toJson $pairs -}}
{{- end }}

{{/*
The known key with the same parent that shares most pairs of letters, of about the same length; else one in the same section
or high up whose last part is the same.
*/}}
{{- define "gpu-operator.nearestKey" -}}
{{- $name := last (splitList "." .path) -}}
{{- $parent := trimSuffix $name .path -}}
{{- $mine := fromJson (include "gpu-operator.pairs" $name) -}}
{{- $best := "" -}}{{- $score := ternary 49 65 (lt (len $name) 11) -}}{{- $same := "" -}}{{- $high := "" -}}
{{- $section := first (splitList "." $parent) -}}
{{- range $candidate, $_ := .known -}}
{{- $plain := trimSuffix ".*" $candidate -}}
{{- $word := last (splitList "." $plain) -}}
{{- if eq $plain (printf "%s%s" $parent $word) -}}
{{- $theirs := fromJson (include "gpu-operator.pairs" $word) -}}
{{- $shared := 0 -}}
{{- range $pair, $_ := $mine -}}{{- if hasKey $theirs $pair -}}{{- $shared = add1 $shared -}}{{- end -}}{{- end -}}
{{- $likeness := div (mul 200 $shared) (max 1 (add (len $mine) (len $theirs))) -}}
{{- $longer := sub (len $word) (len $name) -}}
{{- if and (gt (int $likeness) (int $score)) (le (int $longer) 2) (ge (int $longer) -2) -}}{{- $score = $likeness -}}{{- $best = $plain -}}{{- end -}}
{{- else if and (eq (lower $word) (lower $name)) (gt (len $name) 5) -}}
{{- if and (not $same) (hasPrefix (printf "%s." $section) $plain) -}}{{- $same = $plain -}}
{{- else if and (not $high) (lt (len (splitList "." $plain)) 3) -}}{{- $high = $plain -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- default (default $high $same) $best -}}
{{- end }}

{{/* Adds to out.list what files/advice.yaml says of the values. dict "root" "out" "refuse" (true: what is refused). */}}
{{- define "gpu-operator.advice" -}}
{{- $values := .root.Values -}}
{{- $out := .out -}}
{{- $refuse := default false .refuse -}}
{{- range $rule := fromYamlArray (.root.Files.Get "files/advice.yaml") -}}
{{- range $key := default (list $rule.key) $rule.keys -}}
{{- $found := fromJson (include "gpu-operator.lookup" (dict "values" $values "key" $key)) -}}
{{- if and $found.there (eq $refuse (hasKey $rule "refuse")) -}}
{{- if $rule.env -}}
{{- $names := ternary $rule.env (list $rule.env) (kindIs "slice" $rule.env) -}}
{{- range (ternary $found.value list (kindIs "slice" $found.value)) -}}
{{- if and (kindIs "map" .) (has (toString .name) $names) -}}
{{- include "gpu-operator.applyRule" (dict "rule" $rule "values" $values "name" (printf "%s %s" $key .name) "value" .value "out" $out) -}}
{{- end -}}
{{- end -}}
{{- else -}}
{{- include "gpu-operator.applyRule" (dict "rule" $rule "values" $values "name" $key "value" $found.value "out" $out) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* One rule on one value. dict "rule" "values" "name" "value" "out". */}}
{{- define "gpu-operator.applyRule" -}}
{{- $rule := .rule -}}
{{- $text := toString .value -}}
{{- $applies := true -}}
{{- if hasKey $rule "value" -}}{{- $applies = eq $text $rule.value -}}{{- end -}}
{{- if $rule.sameAs -}}{{- $applies = and $applies (eq $text (toString (fromJson (include "gpu-operator.lookup" (dict "values" .values "key" $rule.sameAs))).value)) -}}{{- end -}}
{{- if $rule.differsFrom -}}{{- $applies = and $applies (ne $text (toString (fromJson (include "gpu-operator.lookup" (dict "values" .values "key" $rule.differsFrom))).value)) -}}{{- end -}}
{{- if $rule.numeric -}}{{- $applies = and $applies (not (kindIs "string" .value)) (contains "." $text) -}}{{- end -}}
{{- if $rule.suffix -}}{{- $applies = and $applies (hasSuffix $rule.suffix $text) -}}{{- end -}}
{{- if $rule.relative -}}{{- $applies = and $applies (ne $text "") (not (hasPrefix "/" $text)) -}}{{- end -}}
{{- if and $rule.notEmpty (empty .value) -}}{{- $applies = false -}}{{- end -}}
{{- $values := .values -}}
{{- range $key := $rule.with -}}
{{- if not (fromJson (include "gpu-operator.lookup" (dict "values" $values "key" $key))).value -}}{{- $applies = false -}}{{- end -}}
{{- end -}}
{{- if $rule.without -}}
{{- $missing := false -}}
{{- range $key := $rule.without -}}
{{- if not (fromJson (include "gpu-operator.lookup" (dict "values" $values "key" $key))).value -}}{{- $missing = true -}}{{- end -}}
{{- end -}}
{{- $applies = and $applies $missing -}}
{{- end -}}
{{- if $applies -}}
{{- $shown := ternary "" (printf " (%v)" .value) (or (kindIs "map" .value) (kindIs "slice" .value)) -}}
{{- $says := ternary $rule.refuse (printf "%s. Instead: %s" $rule.does $rule.instead) (hasKey $rule "refuse") -}}
{{- $_ := set .out "list" (append .out.list (printf "%s%s: %s" .name $shown $says)) -}}
{{- end -}}
{{- end }}

{{/* {"there": BOOL, "value": …} of a dotted key; null counts as absent. dict "values" "key". */}}
{{- define "gpu-operator.lookup" -}}
{{- $at := .values -}}
{{- $there := true -}}
{{- range splitList "." .key -}}
{{- if and $there (kindIs "map" $at) (hasKey $at .) -}}{{- $at = index $at . -}}{{- else -}}{{- $there = false -}}{{- end -}}
{{- end -}}
{{- toJson (dict "there" (and $there (not (kindIs "invalid" $at))) "value" (ternary $at "" $there)) -}}
{{- end }}
