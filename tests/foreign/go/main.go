// Verifies a log with the code of Go's checksum database (golang.org/x/mod/sumdb): note for the
// signatures, tlog for the tree. Nothing here hashes or verifies by itself.
//
//	verify <folder>
//
// The folder has what docs/evidence.md describes: log/ (tlog-tiles), keys, checkpoints/ and
// receipts/. The last line on standard output says what was checked; anything wrong exits with 1.
package main

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// tiles reads tiles of height 8 where C2SP's layout has them: without the height in the path.
type tiles struct{ folder string }

func (t tiles) Height() int { return 8 }

func (t tiles) ReadTiles(wanted []tlog.Tile) ([][]byte, error) {
	var data [][]byte
	for _, tile := range wanted {
		path := strings.Replace(tile.Path(), "tile/8/", "tile/", 1)
		content, err := os.ReadFile(filepath.Join(t.folder, path))
		if err != nil && tile.W < 256 { // it may have been filled since
			tile.W = 256
			full := strings.Replace(tile.Path(), "tile/8/", "tile/", 1)
			content, err = os.ReadFile(filepath.Join(t.folder, full))
		}
		if err != nil {
			return nil, err
		}
		data = append(data, content)
	}
	return data, nil
}

func (t tiles) SaveTiles([]tlog.Tile, [][]byte) {}

// stored is a tree that tlog builds itself from the entries.
type stored []tlog.Hash

func (s stored) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	var found []tlog.Hash
	for _, index := range indexes {
		found = append(found, s[index])
	}
	return found, nil
}

func check(err error, what string) {
	if err != nil {
		fmt.Println(what+":", err)
		os.Exit(1)
	}
}

func need(holds bool, what string) {
	if !holds {
		check(fmt.Errorf("does not hold"), what)
	}
}

// verifiers reads the file of verifier keys.
func verifiers(path string) []note.Verifier {
	content, err := os.ReadFile(path)
	check(err, path)
	var found []note.Verifier
	for _, line := range strings.Fields(string(content)) {
		verifier, err := note.NewVerifier(line)
		check(err, line)
		found = append(found, verifier)
	}
	return found
}

// tree opens a checkpoint: signed by one of the keys, named by its origin.
func tree(content []byte, known []note.Verifier, what string) tlog.Tree {
	opened, err := note.Open(content, note.VerifierList(known...))
	check(err, what)
	lines := strings.Split(opened.Text, "\n")
	need(len(lines) == 4 && lines[3] == "" && opened.Sigs[0].Name == lines[0], what+": three lines")
	size, err := strconv.ParseInt(lines[1], 10, 64)
	check(err, what)
	hash, err := tlog.ParseHash(lines[2])
	check(err, what)
	return tlog.Tree{N: size, Hash: hash}
}

// entries reads all entry bundles.
func entries(folder string, size int64) [][]byte {
	var found [][]byte
	for int64(len(found)) < size {
		tile := tlog.Tile{H: 8, L: 0, N: int64(len(found)) / 256, W: 256}
		if left := size - int64(len(found)); left < 256 {
			tile.W = int(left)
		}
		path := strings.Replace(tile.Path(), "tile/8/0/", "tile/entries/", 1)
		content, err := os.ReadFile(filepath.Join(folder, path))
		check(err, path)
		for len(content) > 0 {
			length := 2 + int(binary.BigEndian.Uint16(content))
			found = append(found, content[2:length])
			content = content[length:]
		}
	}
	need(int64(len(found)) == size, "as many entries as the checkpoint says")
	return found
}

func main() {
	folder := os.Args[1]
	known := verifiers(filepath.Join(folder, "keys"))
	content, err := os.ReadFile(filepath.Join(folder, "log", "checkpoint"))
	check(err, "checkpoint")
	head := tree(content, known, "checkpoint")
	log := tlog.TileHashReader(head, tiles{filepath.Join(folder, "log")})

	var own stored
	for index, entry := range entries(filepath.Join(folder, "log"), head.N) {
		hashes, err := tlog.StoredHashes(int64(index), entry, own)
		check(err, fmt.Sprint("entry ", index))
		own = append(own, hashes...)
		proof, err := tlog.ProveRecord(head.N, int64(index), log)
		check(err, fmt.Sprint("proof of entry ", index))
		err = tlog.CheckRecord(proof, head.N, head.Hash, int64(index), tlog.RecordHash(entry))
		check(err, fmt.Sprint("entry ", index))
	}

	paths, err := filepath.Glob(filepath.Join(folder, "checkpoints", "*"))
	check(err, "checkpoints")
	sort.Strings(paths)
	before := tlog.Tree{}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		check(err, path)
		now := tree(content, known, path)
		for _, reader := range []tlog.HashReader{log, own} {
			root, err := tlog.TreeHash(now.N, reader)
			check(err, path)
			need(root == now.Hash, path+": its root is the tree's")
		}
		if before.N > 0 {
			proof, err := tlog.ProveTree(now.N, before.N, log)
			check(err, path)
			check(tlog.CheckTree(proof, now.N, now.Hash, before.N, before.Hash), path)
		}
		before = now
	}
	need(before == head, "the last of the checkpoints is the log's")

	receipts, err := filepath.Glob(filepath.Join(folder, "receipts", "*.tlog-proof"))
	check(err, "receipts")
	for _, path := range receipts {
		receipt(path, known)
	}
	fmt.Printf("%d entries, %d checkpoints, %d receipts\n", head.N, len(paths), len(receipts))
}

// receipt checks a .tlog-proof against the entry that lies beside it.
func receipt(path string, known []note.Verifier) {
	content, err := os.ReadFile(path)
	check(err, path)
	parts := bytes.SplitN(content, []byte("\n\n"), 2)
	need(len(parts) == 2, path+": a blank line")
	lines := strings.Split(string(parts[0]), "\n")
	need(lines[0] == "c2sp.org/tlog-proof@v1", path+": its first line")
	index, err := strconv.ParseInt(strings.TrimPrefix(lines[1], "index "), 10, 64)
	check(err, path)
	var proof tlog.RecordProof
	for _, line := range lines[2:] {
		data, err := base64.StdEncoding.DecodeString(line)
		check(err, path)
		need(len(data) == tlog.HashSize, path+": hashes of 32 bytes")
		proof = append(proof, *(*tlog.Hash)(data))
	}
	entry, err := os.ReadFile(strings.TrimSuffix(path, ".tlog-proof") + ".json")
	check(err, path)
	head := tree(parts[1], known, path)
	check(tlog.CheckRecord(proof, head.N, head.Hash, index, tlog.RecordHash(entry)), path)
}
