select * from {{ source('lineage', 'counts') }}
