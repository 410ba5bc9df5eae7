{{- define "trustfold.name" -}}
{{- if contains "trustfold" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-trustfold" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* Labels of an object; the argument is a list of the root and the component. */}}
{{- define "trustfold.labels" -}}
{{- $root := index . 0 -}}
{{ include "trustfold.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ $root.Chart.Name }}-{{ $root.Chart.Version }}
{{- end }}

{{- define "trustfold.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: trustfold
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* Beginning of every pod's specification. */}}
{{- define "trustfold.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false # else Kubernetes sets TRUSTFOLD_PORT and the like to addresses of services
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: { type: RuntimeDefault }
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Image, environment and restrictions of every container. */}}
{{- define "trustfold.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
env:
  - { name: TRUSTFOLD_BROKER, value: {{ .Values.kafka.bootstrap | quote }} }
  - { name: TRUSTFOLD_APP_ID, value: {{ .Values.kafka.appId | quote }} }
  - { name: TRUSTFOLD_PARTITIONS, value: {{ .Values.kafka.partitions | quote }} }
  - { name: TRUSTFOLD_SECURITY_PROTOCOL, value: {{ .Values.kafka.securityProtocol | quote }} }
  {{- with .Values.kafka.saslMechanism }}
  - { name: TRUSTFOLD_SASL_MECHANISM, value: {{ . | quote }} }
  {{- end }}
  {{- with .Values.kafka.credentials }}
  - { name: TRUSTFOLD_SASL_USERNAME, valueFrom: { secretKeyRef: { name: {{ . | quote }}, key: username } } }
  - { name: TRUSTFOLD_SASL_PASSWORD, valueFrom: { secretKeyRef: { name: {{ . | quote }}, key: password } } }
  {{- end }}
  {{- if .Values.kafka.tls }}
  - { name: TRUSTFOLD_SSL_CA_LOCATION, value: /etc/trustfold-tls/ca.crt }
  {{- if .Values.kafka.clientCertificate }}
  - { name: TRUSTFOLD_SSL_CERTIFICATE_LOCATION, value: /etc/trustfold-tls/tls.crt }
  - { name: TRUSTFOLD_SSL_KEY_LOCATION, value: /etc/trustfold-tls/tls.key }
  {{- end }}
  {{- end }}
  {{- range $name, $value := .Values.env }}
  - { name: {{ $name }}, value: {{ $value | quote }} }
  {{- end }}
{{- end }}

{{/* Volumes of every pod, and where they are mounted. */}}
{{- define "trustfold.volumes" -}}
- { name: tmp, emptyDir: { sizeLimit: 256Mi } }
{{- if or .Values.rules .Values.policies }}
- { name: rules, configMap: { name: {{ include "trustfold.name" . }}-rules } }
{{- end }}
{{- with .Values.kafka.tls }}
- { name: tls, secret: { secretName: {{ . | quote }}, defaultMode: 0440 } }
{{- end }}
{{- end }}

{{- define "trustfold.mounts" -}}
- { name: tmp, mountPath: /tmp }
{{- if or .Values.rules .Values.policies }}
- { name: rules, mountPath: /etc/trustfold, readOnly: true }
{{- end }}
{{- if .Values.kafka.tls }}
- { name: tls, mountPath: /etc/trustfold-tls, readOnly: true }
{{- end }}
{{- end }}

{{- define "trustfold.rulesEnv" -}}
{{- if .Values.rules }}
- { name: TRUSTFOLD_RULES, value: /etc/trustfold/rules.toml }
{{- end }}
{{- if .Values.policies }}
- { name: TRUSTFOLD_POLICIES, value: /etc/trustfold/policies.toml }
{{- end }}
{{- end }}

{{/* Probes of the port of health and metrics. */}}
{{- define "trustfold.probes" -}}
ports:
  - { name: metrics, containerPort: 9464 }
startupProbe: # joining the group and reading the changelogs back
  httpGet: { path: /healthz, port: metrics }
  periodSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet: { path: /healthz, port: metrics }
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet: { path: /readyz, port: metrics }
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}
