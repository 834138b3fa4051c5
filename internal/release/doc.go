// Package release defines what is published for a version, and proves who published it. A manifest
// with the name, size and SHA-256 of every file and the digest of every image is signed as minisign
// signs (https://jedisct1.GitHub.io/minisign), by one maintainer or by several, and expires. So the
// agent, and an operator with the minisign program, check the same thing. The package downloads
// nothing, and its callers decide which version they want.
package release

// The files that are published with a release.
const (
	ManifestName  = "release.json"
	SignatureName = ManifestName + ".minisig"
	SumsName      = "SHA256SUMS"  // every file, as `sha256sum -c` reads it
	VersionName   = "version.txt" // only the version, for clients that ask the site for the newest one
)
