select * from {{ source('lineage', 'datasets') }}
