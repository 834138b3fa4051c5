package doctor

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/ingress"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// maxHTTPRoutes bounds how many HTTPRoutes of a namespace are looked at.
const maxHTTPRoutes = 500

// httpRoutes reports the HTTPRoutes that the gateway does not support. A cluster may lack the kind.
func (c *cluster) httpRoutes(ctx context.Context) []Finding {
	reader, err := c.reader()
	if err != nil {
		return failure(err, fixCluster)
	}
	var routes []unstructured.Unstructured
	for _, namespace := range orAll(c.Config.Namespaces) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(appcache.HTTPRouteKind)
		err := reader.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels(objectmeta.Labels()), client.Limit(maxHTTPRoutes))
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return failure(fmt.Errorf("list HTTPRoutes: %w", err), fixManifest)
		}
		routes = append(routes, list.Items...)
	}
	return uncarried(routes)
}

func orAll(namespaces []string) []string {
	if len(namespaces) == 0 {
		return []string{""}
	}
	return namespaces
}

func uncarried(routes []unstructured.Unstructured) (found []Finding) {
	wrong := 0
	for i := range routes {
		reason := ingress.Uncarried(&routes[i])
		if reason == "" {
			continue
		}
		if wrong++; wrong <= shownHosts {
			found = append(found, warning(routes[i].GetNamespace()+": "+printable.Text(reason), "change the HTTPRoute, or use an Ingress")...)
		}
	}
	if wrong > shownHosts {
		found = append(found, warning(fmt.Sprintf("%d more HTTPRoutes", wrong-shownHosts), "list them with `pipeops-runner routes AGENT`")...)
	}
	return found
}
