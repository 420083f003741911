{{- /* The name of a part's objects: dsagent.name (list . "agent") */ -}}
{{- define "dsagent.name" -}}
{{- $root := index . 0 -}}
{{- printf "%s-%s" $root.Release.Name (index . 1) | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "dsagent.labels" -}}
{{- $root := index . 0 -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/part-of: dsagent
{{ include "dsagent.selector" . }}
{{- end -}}

{{- define "dsagent.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: dsagent
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- /* dsagent.image (list . .Values.agent.image) */ -}}
{{- define "dsagent.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- with $root.Values.image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}{{ end -}}
{{- end -}}

{{- define "dsagent.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "dsagent.priorityClass" -}}
{{- if .Values.priorityClass.create }}
priorityClassName: {{ include "dsagent.name" (list . "priority") }}
{{- end }}
{{- end -}}

{{- define "dsagent.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- /* Two replicas are better on two nodes, but one node is enough. */ -}}
{{- define "dsagent.apart" -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "dsagent.selector" . | nindent 12 }}
{{- end -}}
