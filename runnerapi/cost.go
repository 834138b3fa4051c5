package runnerapi

import "time"

// DefaultCostRange is how far back costs go, if the caller does not say.
const DefaultCostRange = 24 * time.Hour

// CostOptions select costs.
type CostOptions struct {
	Namespace string        // empty for all that the Runner may see
	Since     time.Duration // until now; a day if zero
	ByApp     bool          // instead of by namespace
}

// Cost is what a namespace or an App has cost, in OpenCost's currency: US dollars, unless the
// cluster's owner has set another.
type Cost struct {
	Namespace string  `json:"namespace"`
	App       string  `json:"app,omitempty" doc:"Absent for a whole namespace; and, by App, for what belongs to none."`
	CPU       float64 `json:"cpu"`
	Memory    float64 `json:"memory"`
	Storage   float64 `json:"storage"`
	Network   float64 `json:"network" doc:"Traffic and load balancers."`
	Other     float64 `json:"other" doc:"GPUs, and what OpenCost shares out."`
	Total     float64 `json:"total"`
}

// CostList lists costs.
type CostList struct {
	Start time.Time `json:"start,omitzero"`
	End   time.Time `json:"end,omitzero"`
	Items []Cost    `json:"items" nullable:"false" doc:"The highest first."`
}
