package workload

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
)

// Adoption is what an App has taken over or is about to take over. It is recorded on the App, so
// that the reconciler carries it out, also after a restart. Selectors stay as they were: a
// workload's is immutable, and existing pods must stay reachable until they are gone.
type Adoption struct {
	Objects     map[string]types.UID `json:"objects"`               // by kind/name
	Selector    map[string]string    `json:"selector,omitempty"`    // of the workload
	Service     map[string]string    `json:"service,omitempty"`     // selector of the Service
	ServiceName *string              `json:"serviceName,omitempty"` // of a StatefulSet
}

// AdoptionOf returns the App's record. An unreadable record counts as none.
func AdoptionOf(a *v1alpha1.App) (noted Adoption) {
	if json.Unmarshal([]byte(a.Annotations[objectmeta.Adopted]), &noted) != nil {
		return Adoption{}
	}
	return noted
}
