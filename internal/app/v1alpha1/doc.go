// Package v1alpha1 is the App resource: its types, and what follows from one App alone.
package v1alpha1
