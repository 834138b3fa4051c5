package main

// The fields of an in-toto Statement (https://in-toto.io/Statement/v1) and of SLSA's predicate
// (https://slsa.dev/spec/v1.0/provenance) that a release has. encoding/json writes the same bytes
// in each build; protojson, which the generated types of in-toto need, does not.
const (
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://slsa.dev/provenance/v1"
)

type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     provenance `json:"predicate"`
}

// resource is a ResourceDescriptor: what was made, or what it was made from.
type resource struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

type provenance struct {
	BuildDefinition buildDefinition `json:"buildDefinition"`
	RunDetails      runDetails      `json:"runDetails"`
}

type buildDefinition struct {
	BuildType            string             `json:"buildType"`
	ExternalParameters   externalParameters `json:"externalParameters"`
	InternalParameters   internalParameters `json:"internalParameters"`
	ResolvedDependencies []resource         `json:"resolvedDependencies"`
}

// externalParameters are what a maintainer chooses: the same parameters make the same files.
type externalParameters struct {
	Source          string   `json:"source"`
	Version         string   `json:"version"`
	Commit          string   `json:"commit"`
	Platforms       []string `json:"platforms"`
	ReleaseKeys     []string `json:"releaseKeys,omitempty"`
	ControlPlaneURL string   `json:"controlPlaneUrl,omitempty"`
}

// internalParameters are what this program sets.
type internalParameters struct {
	GoVersion     string   `json:"goVersion"`
	GoFlags       []string `json:"goFlags"`
	GoEnvironment []string `json:"goEnvironment"`
	ImageBase     string   `json:"imageBase"`
}

type runDetails struct {
	Builder builder `json:"builder"`
}

type builder struct {
	ID      string            `json:"id"`
	Version map[string]string `json:"version"`
}
