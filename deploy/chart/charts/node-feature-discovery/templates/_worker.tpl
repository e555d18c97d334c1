{{/*
The worker, rendered by the operator's chart, which knows the image of the operator. dict of this chart's own context with
"operatorImage".
*/}}
{{- define "node-feature-discovery.worker" -}}
{{- if .Values.worker.enable }}
{{- $w := .Values.worker }}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ include "node-feature-discovery.fullname" . }}-worker
  namespace: {{ include "node-feature-discovery.namespace" . }}
  labels:
    {{- include "node-feature-discovery.labels" . | nindent 4 }}
    role: worker
  {{- with $w.daemonsetAnnotations }}
  annotations: {{ toYaml . | nindent 4 }}
  {{- end }}
spec:
  selector:
    matchLabels:
      {{- include "node-feature-discovery.selector" . | nindent 6 }}
      role: worker
  updateStrategy: {{ toYaml $w.updateStrategy | nindent 4 }}
  {{- with $w.revisionHistoryLimit }}
  revisionHistoryLimit: {{ . }}
  {{- end }}
  template:
    metadata:
      labels:
        {{- include "node-feature-discovery.selector" . | nindent 8 }}
        role: worker
      annotations:
        # The configuration is read at start: a changed one starts new pods.
        checksum/config: {{ toYaml $w.config | sha256sum }}
        {{- with $w.annotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "node-feature-discovery.workerAccount" . }}
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets: {{ toYaml . | nindent 8 }}
      {{- end }}
      {{- with default .Values.priorityClassName $w.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      dnsPolicy: ClusterFirstWithHostNet
      {{- if $w.hostNetwork }}
      hostNetwork: true
      {{- end }}
      {{- with $w.podSecurityContext }}
      securityContext: {{ toYaml . | nindent 8 }}
      {{- end }}
      {{- with $w.terminationGracePeriodSeconds }}
      terminationGracePeriodSeconds: {{ . }}
      {{- end }}
      {{- with $w.nodeSelector }}
      nodeSelector: {{ toYaml . | nindent 8 }}
      {{- end }}
      {{- with $w.affinity }}
      affinity: {{ toYaml . | nindent 8 }}
      {{- end }}
      {{- with $w.tolerations }}
      tolerations: {{ toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: worker
          image: {{ include "node-feature-discovery.image" . }}
          imagePullPolicy: {{ (.Values.image).pullPolicy | default "IfNotPresent" }}
          command: [nfd-worker]
          args:
            - -port={{ $w.port }}
            {{- with $w.extraArgs }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          env:
            - name: NODE_NAME
              valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
            - name: POD_NAME
              valueFrom: {fieldRef: {fieldPath: metadata.name}}
            - name: POD_UID
              valueFrom: {fieldRef: {fieldPath: metadata.uid}}
            - name: KUBERNETES_NAMESPACE
              valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
            {{- with $w.extraEnvs }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            - name: http
              containerPort: {{ $w.port }}
          startupProbe:
            httpGet: {path: /healthz, port: http}
            initialDelaySeconds: 1
            periodSeconds: 1
            failureThreshold: 120
          livenessProbe:
            httpGet: {path: /healthz, port: http}
            {{- with $w.livenessProbe }}
            {{- omit . "httpGet" "grpc" "exec" "tcpSocket" | toYaml | nindent 12 }}
            {{- end }}
          securityContext: {{ toYaml $w.securityContext | nindent 12 }}
          {{- with $w.resources }}
          resources: {{ toYaml . | nindent 12 }}
          {{- end }}
          volumeMounts:
            - {name: host-boot, mountPath: /host-boot, readOnly: true}
            - {name: host-os-release, mountPath: /host-etc/os-release, readOnly: true}
            - {name: host-sys, mountPath: /host-sys, readOnly: true}
            - {name: host-usr-lib, mountPath: /host-usr/lib, readOnly: true}
            - {name: host-lib, mountPath: /host-lib, readOnly: true}
            - {name: host-proc-swaps, mountPath: /host-proc/swaps, readOnly: true}
            {{- if $w.mountUsrSrc }}
            - {name: host-usr-src, mountPath: /host-usr/src, readOnly: true}
            {{- end }}
            - {name: features-d, mountPath: /etc/kubernetes/node-feature-discovery/features.d/, readOnly: true}
            - {name: nfd-worker-conf, mountPath: /etc/kubernetes/node-feature-discovery/nfd-worker.conf, readOnly: true, subPath: nfd-worker.conf}
      volumes:
        - {name: host-boot, hostPath: {path: /boot}}
        - {name: host-os-release, hostPath: {path: /etc/os-release}}
        - {name: host-sys, hostPath: {path: /sys}}
        - {name: host-usr-lib, hostPath: {path: /usr/lib}}
        - {name: host-lib, hostPath: {path: /lib}}
        - {name: host-proc-swaps, hostPath: {path: /proc/swaps}}
        {{- if $w.mountUsrSrc }}
        - {name: host-usr-src, hostPath: {path: /usr/src}}
        {{- end }}
        - {name: features-d, hostPath: {path: /etc/kubernetes/node-feature-discovery/features.d/, type: DirectoryOrCreate}}
        - name: nfd-worker-conf
          configMap:
            name: {{ include "node-feature-discovery.fullname" . }}-worker-conf
{{- end }}
{{- end }}

{{/* Nothing said: the operator's image, whose program it is; a repository of upstream's name: its version 0.19. */}}
{{- define "node-feature-discovery.image" -}}
{{- $i := default dict .Values.image -}}
{{- $theirs := regexMatch "(^|/)node-feature-discovery$" (default "" $i.repository) -}}
{{- if not $i.repository -}}
{{ .operatorImage }}
{{- else -}}
{{ printf "%s:%v" $i.repository (default (ternary "v0.19.0" "v0.1.0" $theirs) $i.tag) }}
{{- end -}}
{{- end }}
