// SPDX-License-Identifier: Apache-2.0

// Package shim is the shared part of the conformance shim: per-spec bookkeeping
// and replacements for what the suites would build with the Go tool at run time.
// The test packages of the lab's scratch copy import it.
package shim

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sync"

	ginkgo "github.com/onsi/ginkgo/v2"

	"github.com/containernetworking/cni/pkg/invoke"
)

// Call is one execution of an external plugin binary.
type Call struct {
	Plugin  string `json:"plugin"`
	Command string `json:"command"`
	Exit    int    `json:"exit"`
	Error   string `json:"error,omitempty"`
	Anomaly string `json:"anomaly,omitempty"` // protocol oddity that the tests themselves may not see
	Env     string `json:"env,omitempty"`
	Stdin   string `json:"stdin,omitempty"`
	Stdout  string `json:"stdout,omitempty"`
	Stderr  string `json:"stderr,omitempty"`
	Millis  int64  `json:"ms"`
}

var state struct {
	sync.Mutex
	calls       []*Call
	notPortable string
	failed      bool
	callsBefore int // calls before the spec's first failed assertion
}

// Begin records a run of an external binary in the running spec; the returned
// function completes the record.
func Begin(c Call) (end func(Call)) {
	state.Lock()
	defer state.Unlock()
	p := &c
	state.calls = append(state.calls, p)
	return func(c Call) {
		state.Lock()
		defer state.Unlock()
		*p = c
	}
}

// NotPortable takes the running spec out of the evidence: it depends on
// something that exists only when the plugin runs inside the test process.
func NotPortable(reason string) {
	state.Lock()
	defer state.Unlock()
	state.notPortable = reason
}

// Fail is the suites' fail handler. Specs often go on after a failure inside
// ns.Do; what ran only then did not cause it.
func Fail(message string, callerSkip ...int) {
	state.Lock()
	if !state.failed {
		state.failed, state.callsBefore = true, len(state.calls)
	}
	state.Unlock()
	skip := 1
	if len(callerSkip) > 0 {
		skip += callerSkip[0]
	}
	ginkgo.Fail(message, skip)
}

// BinDir is the directory with the plugins under test.
func BinDir() string {
	d, err := filepath.Abs(os.Getenv("CNI_TEST_BIN"))
	if os.Getenv("CNI_TEST_BIN") == "" || err != nil {
		fmt.Fprintln(os.Stderr, "cnishim: CNI_TEST_BIN is not set")
		os.Exit(2)
	}
	return d
}

// BinDirErr has the shape of filepath.Abs.
func BinDirErr(string) (string, error) {
	return BinDir(), nil
}

// Build replaces gexec.Build: plugins come from the directory under
// test, test helpers (echo server and client) are built beforehand.
func Build(pkg string, _ ...string) (string, error) {
	name := path.Base(pkg)
	dir := BinDir()
	switch path.Base(path.Dir(pkg)) {
	case "echo":
		name, dir = "echo-"+name, os.Getenv("CNI_SHIM_HELPERS")
	}
	p := filepath.Join(dir, name)
	_, err := os.Stat(p)
	return p, err
}

// Command replaces exec.Command where a suite runs the plugin itself.
func Command(name string, arg ...string) *exec.Cmd {
	Begin(Call{Plugin: filepath.Base(name), Command: "(run by the test)"})
	return exec.Command(name, arg...)
}

// CountLookPath wraps a LookPath for a tool that runs external plugins.
func CountLookPath(p string, err error) (string, error) {
	Begin(Call{Plugin: filepath.Base(p), Command: "(run by the test)"})
	return p, err
}

func init() {
	// Plugins run through libcni or invoke.Delegate* by the test itself. The
	// hook does not exist upstream; the lab adds it to the scratch copy of
	// the invoke package.
	invoke.CNIShimOnExec = func(pluginPath string) {
		if filepath.Dir(pluginPath) == BinDir() {
			Begin(Call{Plugin: filepath.Base(pluginPath), Command: "(run through libcni)"})
		}
	}
}

func report(v interface{}) {
	file := os.Getenv("CNI_SHIM_REPORT")
	if file == "" {
		return
	}
	line, err := json.Marshal(v)
	if err != nil {
		line, _ = json.Marshal(map[string]string{"marshal_error": err.Error()})
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return
	}
	defer f.Close()
	f.Write(append(line, '\n'))
}

var _ = ginkgo.ReportBeforeSuite(func(r ginkgo.Report) {
	report(map[string]interface{}{"total_specs": r.PreRunStats.TotalSpecs})
})

var _ = ginkgo.ReportBeforeEach(func(r ginkgo.SpecReport) {
	state.Lock()
	defer state.Unlock()
	state.calls, state.notPortable, state.failed, state.callsBefore = nil, "", false, 0
})

var _ = ginkgo.ReportAfterEach(func(r ginkgo.SpecReport) {
	state.Lock()
	defer state.Unlock()
	rec := map[string]interface{}{
		"name":       r.FullText(),
		"state":      r.State.String(),
		"shim_calls": len(state.calls),
		"seconds":    r.RunTime.Seconds(),
	}
	if state.notPortable != "" {
		rec["not_portable"] = state.notPortable
	}
	calls := make([]Call, len(state.calls))
	for i, c := range state.calls {
		calls[i] = *c
	}
	if r.Failed() {
		if state.failed {
			rec["calls_before_failure"] = state.callsBefore
		}
		rec["message"] = r.Failure.Message
		rec["location"] = r.Failure.Location.String()
		if r.Failure.ForwardedPanic != "" {
			rec["panic"] = r.Failure.ForwardedPanic
		}
	} else {
		for i := range calls { // keep passing records small
			calls[i].Env, calls[i].Stdin, calls[i].Stdout, calls[i].Stderr = "", "", "", ""
		}
	}
	rec["calls"] = calls
	report(rec)
})
