select * from {{ source('lineage', 'drops') }}
