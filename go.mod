module github.com/fucina-go/fucina

go 1.26.0

require (
	github.com/x448/float16 v0.8.4
	golang.org/x/sys v0.50.0
	golang.org/x/term v0.48.0
	golang.org/x/text v0.44.0
)

require github.com/pbnjay/memory v0.0.0-20210728143218-7b4eea64cf58
