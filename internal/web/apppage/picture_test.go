package apppage_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/web/apppage"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestPicture_HostsServicePods names each part in words, too.
func TestPicture_HostsServicePods(t *testing.T) {
	d := failing()
	assert.Nil(t, d.Picture(), "nothing reaches an App without ports")
	d.Spec.Ports = []runnerapi.Port{{Port: 8080, Service: 80}}
	d.Spec.Ingress = &runnerapi.Ingress{Hosts: []runnerapi.IngressHost{{Host: "web.example.com"}, {Host: "shop.example.com", Path: "/cart"}}}
	assert.Equal(t, "web.example.com, served; shop.example.com/cart, not served → Service web, port 80 → Pods, 0/1 ready", d.Picture().Text)
	assert.Len(t, d.Picture().Arrows, 3)

	d.Inside = &apppage.Inside{}
	assert.Len(t, d.Picture().Boxes, 3, "there are no pods")
	for i := range 20 {
		d.Inside.Pods = append(d.Inside.Pods, apppage.Pod{Name: fmt.Sprintf("web-7d9c8b6f4-%d", i), State: "Ready"})
	}
	p := d.Picture()
	assert.Len(t, p.Boxes, 9)
	assert.Equal(t, "15 more pods", p.Boxes[8].Title)
	assert.Equal(t, "good", p.Boxes[3].Tone)
	for _, box := range p.Boxes {
		assert.LessOrEqual(t, box.X+box.Width, p.Width)
		assert.LessOrEqual(t, box.Y+box.Height, p.Height)
	}
	assert.Contains(t, render(t, "app-page", d), `aria-label="web.example.com, served; shop.example.com/cart, not served → Service web`)
}
