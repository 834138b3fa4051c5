package runnerapi

// Page is what a list says about the rest of it.
type Page struct {
	Continue string `json:"continue,omitempty" doc:"Token of the next part of the list; absent at its end. Send it in the query, beside the same limit."`
}
