module corelane/clients/suite

go 1.26.0
