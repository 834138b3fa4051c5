// Package operatorapi is the operator API: what operators ask of the control plane, over HTTPS. A
// call is described once, with its method, path, role, input, output and what it does. The server,
// the client, the OpenAPI document and the operators' audit log follow from the description.
//
// A Target carries out calls. Client sends them to a control plane; Local carries them out on the
// control plane's data in this process, for operators on its machine. Both ends are one program's,
// so that inputs and outputs may use the control plane's own types.
package operatorapi
