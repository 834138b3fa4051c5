// Package release says what is published for a version, and proves who published
// it: a manifest with the name, size and SHA-256 of every file and the digest of
// every image, signed as minisign signs (https://jedisct1.github.io/minisign), so
// that the agent and an operator with the minisign program check the same thing.
// It downloads nothing, and which version is wanted is for its callers to decide.
package release

// What a release is published with, beside its files.
const (
	ManifestName  = "release.json"
	SignatureName = ManifestName + ".minisig"
	SumsName      = "SHA256SUMS"  // every file, as `sha256sum -c` reads it
	VersionName   = "version.txt" // the version alone, for those who ask the site which one is newest
)
