package runnertest

import "github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"

// The handles of a FakeBackend are those of the client.
type (
	fakeApps       struct{ *FakeBackend }
	fakeSecrets    struct{ *FakeBackend }
	fakeConfigMaps struct{ *FakeBackend }
	fakeNamespaces struct{ *FakeBackend }
	fakeManifests  struct{ *FakeBackend }
	fakeReleases   struct{ *FakeBackend }
	fakeSources    struct{ *FakeBackend }
	fakeBuilds     struct{ *FakeBackend }
	fakeNodes      struct{ *FakeBackend }
	fakeCluster    struct{ *FakeBackend }
	fakeEvents     struct{ *FakeBackend }
	fakeRoutes     struct{ *FakeBackend }
	fakeMonitoring struct{ *FakeBackend }
)

// Apps returns the backend of these calls.
func (b *FakeBackend) Apps() backend.Apps { return fakeApps{b} }

// Secrets returns the backend of these calls.
func (b *FakeBackend) Secrets() backend.Secrets { return fakeSecrets{b} }

// ConfigMaps returns the backend of these calls.
func (b *FakeBackend) ConfigMaps() backend.ConfigMaps { return fakeConfigMaps{b} }

// Namespaces returns the backend of these calls.
func (b *FakeBackend) Namespaces() backend.Namespaces { return fakeNamespaces{b} }

// Manifests returns the backend of these calls.
func (b *FakeBackend) Manifests() backend.Manifests { return fakeManifests{b} }

// Releases returns the backend of these calls.
func (b *FakeBackend) Releases() backend.Releases { return fakeReleases{b} }

// Sources returns the backend of these calls.
func (b *FakeBackend) Sources() backend.Sources { return fakeSources{b} }

// Builds returns the backend of these calls.
func (b *FakeBackend) Builds() backend.Builds { return fakeBuilds{b} }

// Nodes returns the backend of these calls.
func (b *FakeBackend) Nodes() backend.Nodes { return fakeNodes{b} }

// Cluster returns the backend of these calls.
func (b *FakeBackend) Cluster() backend.Cluster { return fakeCluster{b} }

// Events returns the backend of these calls.
func (b *FakeBackend) Events() backend.Events { return fakeEvents{b} }

// Routes returns the backend of these calls.
func (b *FakeBackend) Routes() backend.Routes { return fakeRoutes{b} }

// Monitoring returns the backend of these calls.
func (b *FakeBackend) Monitoring() backend.Monitoring { return fakeMonitoring{b} }

// Sessions returns the backend of the calls into the pods of Apps.
func (b *FakeBackend) Sessions() backend.Sessions { return fakeApps{b} }
