package deployments

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// The objects of metrics-server, as upstream has them: manifests/base and the image of
// manifests/components/release of the Go module sigs.k8s.io/metrics-server, in the version that
// test/cluster/metricsserver pins. A test compares them with the module and, with -update, copies
// them from it.
//
//go:embed components/metrics-server/*.yaml
var components embed.FS

const (
	metricsServerDir = "components/metrics-server"
	// MetricsServerFile is the file with the output of MetricsServer.
	MetricsServerFile = "components/metrics-server.yaml"
)

const metricsServerHeader = `# metrics-server %s, for a cluster that has no metrics API: ` + "`pipeops-runner metrics`" + `, right-sizing and
# autoscaling need it. k3s and k3d bring their own, and so do most clusters of cloud providers. See first that there is none:
#
#   kubectl get apiservice v1beta1.metrics.k8s.io
#   kubectl apply --server-side -f metrics-server.yaml
#
# Where the kubelets' certificates are not signed by the cluster's CA (kubeadm, kind), add the
# argument --kubelet-insecure-tls below. With Helm: agent.autoInstallComponents (docs/helm.md).
#
# Made by ` + "`go generate ./deployments/...`" + ` from components/metrics-server, which is upstream's. Do not edit.
`

// MetricsServer returns the content of components/metrics-server.yaml: upstream's objects, under
// upstream's names, with the image of the release.
func MetricsServer() ([]byte, error) {
	objects, image, err := metricsServerObjects()
	if err != nil {
		return nil, err
	}
	out := bytes.NewBufferString(fmt.Sprintf(metricsServerHeader, image.tag))
	for _, o := range objects {
		if o.GetKind() == "Deployment" {
			if err := editContainer(o, func(c map[string]any) { c["image"] = image.name + ":" + image.tag }); err != nil {
				return nil, err
			}
		}
		text, err := sigsyaml.Marshal(o.Object)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	return out.Bytes(), nil
}

type releasedImage struct{ name, tag string }

// metricsServerObjects returns upstream's objects, with the label by which upstream's kustomization
// joins them.
func metricsServerObjects() (objects []*unstructured.Unstructured, image releasedImage, err error) {
	for _, name := range []string{"rbac", "service", "deployment", "apiservice"} {
		text, err := components.ReadFile(path.Join(metricsServerDir, name+".yaml"))
		if err != nil {
			return nil, image, err
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			o := &unstructured.Unstructured{}
			if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, image, fmt.Errorf("%s: %w", name, err)
			}
			if len(o.Object) == 0 {
				continue
			}
			if err := joinObject(o); err != nil {
				return nil, image, fmt.Errorf("%s: %w", name, err)
			}
			objects = append(objects, o)
		}
	}
	image, err = metricsServerImage()
	return objects, image, err
}

func metricsServerImage() (releasedImage, error) {
	text, err := components.ReadFile(path.Join(metricsServerDir, "release.yaml"))
	if err != nil {
		return releasedImage{}, err
	}
	var release struct {
		Images []struct{ NewName, NewTag string }
	}
	if err := sigsyaml.Unmarshal(text, &release); err != nil || len(release.Images) != 1 {
		return releasedImage{}, fmt.Errorf("release.yaml names %d images: %w", len(release.Images), err)
	}
	return releasedImage{release.Images[0].NewName, release.Images[0].NewTag}, nil
}

const (
	joinKey   = "k8s-app"
	joinValue = "metrics-server"
)

// joinObject puts the common label where kustomize's commonLabels does.
func joinObject(o *unstructured.Unstructured) error {
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[joinKey] = joinValue
	o.SetLabels(labels)
	var paths [][]string
	switch o.GetKind() {
	case "Deployment":
		paths = [][]string{{"spec", "selector", "matchLabels"}, {"spec", "template", "metadata", "labels"}}
	case "Service":
		paths = [][]string{{"spec", "selector"}}
	}
	for _, p := range paths {
		if err := unstructured.SetNestedField(o.Object, joinValue, append(p, joinKey)...); err != nil {
			return err
		}
	}
	return nil
}

func editContainer(o *unstructured.Unstructured, edit func(map[string]any)) error {
	list, found, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if err != nil || !found || len(list) != 1 {
		return fmt.Errorf("%s has %d containers: %w", o.GetName(), len(list), err)
	}
	edit(list[0].(map[string]any))
	return unstructured.SetNestedSlice(o.Object, list, "spec", "template", "spec", "containers")
}

// What the chart puts in other places of the objects, as they stand in YAML.
const (
	releaseNamespace = "{{ .Release.Namespace }}"
	placeLabels      = "LABELS"
	placeImage       = "IMAGE"
	placeInsecure    = "INSECURE"
	placeResources   = "RESOURCES"
	placePod         = "POD"
)

// These names are unique in the cluster. An installation of upstream's manifest later must conflict
// with nothing of ours but the APIService.
var chartNames = map[string]string{
	"system:metrics-server":                "pipeops:metrics-server",
	"system:aggregated-metrics-reader":     "pipeops:aggregated-metrics-reader",
	"metrics-server:system:auth-delegator": "pipeops:metrics-server:auth-delegator",
	"metrics-server-auth-reader":           "pipeops-metrics-server-auth-reader",
}

// metricsServerTemplate returns the chart's template: the same objects in the release's namespace,
// if the release includes them.
func metricsServerTemplate() (string, error) {
	objects, image, err := metricsServerObjects()
	if err != nil {
		return "", err
	}
	var out strings.Builder
	fmt.Fprintf(&out, chartHeader, metricsServerDir)
	out.WriteString(`{{- $decided := include "pipeops-agent.metricsServer" . }}
{{- if has $decided (list "ours" "assumed") }}
---
{{- if eq $decided "assumed" }}
# Rendered without a cluster to ask, so it is assumed that it has no metrics API yet. Where it
# has one, set components.metricsServer.install=never; always says that it has none.
{{- end }}
`)
	for i, o := range objects {
		text, err := chartObject(o)
		if err != nil {
			return "", fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.WriteString(text)
	}
	out.WriteString("{{- end }}\n")
	return strings.NewReplacer(
		"    "+placeLabels+`: ""`+"\n", `    {{- include "pipeops-agent.componentLabels" . | nindent 4 }}`+"\n",
		"image: "+placeImage+"\n", fmt.Sprintf("image: {{ with .Values.components.metricsServer.image }}{{ if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default %q }}{{ end }}{{ end }}\n", image.tag),
		"        - "+placeInsecure+"\n", "        {{- if .Values.components.metricsServer.kubeletInsecureTLS }}\n        - --kubelet-insecure-tls\n        {{- end }}\n",
		"resources: "+placeResources+"\n", "resources:\n          {{- toYaml .Values.components.metricsServer.resources | nindent 10 }}\n",
		"      "+placePod+`: ""`+"\n", "      {{- with .Values.imagePullSecrets }}\n      imagePullSecrets:\n        {{- toYaml . | nindent 8 }}\n      {{- end }}\n      {{- with .Values.tolerations }}\n      tolerations:\n        {{- toYaml . | nindent 8 }}\n      {{- end }}\n",
	).Replace(out.String()), nil
}

// chartObject returns an object with placeholders for the values of the release.
func chartObject(o *unstructured.Unstructured) (string, error) {
	labels := o.GetLabels()
	labels[placeLabels] = ""
	o.SetLabels(labels)
	switch o.GetKind() {
	case "RoleBinding": // of a Role of kube-system
		subjectsIn(o)
	case "ClusterRoleBinding":
		subjectsIn(o)
	case "ClusterRole":
	case "APIService":
		if err := unstructured.SetNestedField(o.Object, releaseNamespace, "spec", "service", "namespace"); err != nil {
			return "", err
		}
	case "Deployment":
		o.SetNamespace(releaseNamespace)
		if err := unstructured.SetNestedField(o.Object, "", "spec", "template", "spec", placePod); err != nil {
			return "", err
		}
		err := editContainer(o, func(c map[string]any) {
			c["image"], c["resources"] = placeImage, placeResources
			c["args"] = append(c["args"].([]any), placeInsecure)
		})
		if err != nil {
			return "", err
		}
	default:
		o.SetNamespace(releaseNamespace)
	}
	if name, other := chartNames[o.GetName()]; other {
		o.SetName(name)
	}
	if ref, found, _ := unstructured.NestedString(o.Object, "roleRef", "name"); found && chartNames[ref] != "" {
		if err := unstructured.SetNestedField(o.Object, chartNames[ref], "roleRef", "name"); err != nil {
			return "", err
		}
	}
	text, err := sigsyaml.Marshal(o.Object)
	return string(text), err
}

// subjectsIn points a binding to the release's ServiceAccount.
func subjectsIn(o *unstructured.Unstructured) {
	subjects, _ := o.Object["subjects"].([]any)
	for _, s := range subjects {
		s.(map[string]any)["namespace"] = releaseNamespace
	}
}
